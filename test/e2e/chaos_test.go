// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
)

// chaosQuota is of every share; each is alone on its card, so that the card's
// peak is the share's.
const chaosQuota = 700 * mib

// guest is one holder in the hands of a monkey, and what it should hold.
type guest struct {
	holder *bench.Holder
	pieces map[uint64]uint64 // bytes by address
	held   uint64
	forks  []int
}

// monkey does random things with clients of all shares.
type monkey struct {
	host    *host
	shares  []api.Share
	random  *rand.Rand
	clients []*guest
	done    *deeds
}

// deeds counts what all monkeys have done.
type deeds struct {
	mutex sync.Mutex // guards times
	times map[string]int
}

func (d *deeds) did(what string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.times[what]++
}

// enough says whether so much has happened that the rest proves something.
func (d *deeds) enough() bool {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.times["alloc"] >= 10 && d.times["kill"] > 0 && d.times["kill an agent"] > 0
}

// allowed says whether a call may come to that: it worked, or the share had no
// room, or (at start) the agent was just away.
func allowed(err error, results ...int) error {
	var call *bench.Refused
	if err == nil {
		return nil
	}
	if errors.As(err, &call) {
		for _, result := range results {
			if call.Result == result {
				return nil
			}
		}
	}
	return err
}

func (m *monkey) begin(ctx context.Context) error {
	share := m.shares[m.random.IntN(len(m.shares))]
	holder, err := m.host.StartHolder(ctx, m.host.Environ(share.Socket))
	if err != nil {
		return err
	}
	if _, err := holder.Do("start"); err != nil {
		holder.Kill()
		return allowed(err, outOfMemory, systemNotReady)
	}
	m.clients = append(m.clients, &guest{holder: holder, pieces: map[uint64]uint64{}})
	return nil
}

func (m *monkey) alloc(c *guest) error {
	bytes := m.random.Uint64N(200*mib)>>m.random.IntN(12) + 1 // of 0 the driver says that they are none
	address, err := c.holder.Number("alloc %d", bytes)
	if err != nil {
		return allowed(err, outOfMemory)
	}
	if _, err := c.holder.Do("write %d %d", address, min(bytes, 4096)); err != nil {
		return err
	}
	c.pieces[address] = bytes
	c.held += bytes
	return nil
}

func (m *monkey) free(c *guest) error {
	for address, bytes := range c.pieces {
		if _, err := c.holder.Do("check %d %d", address, min(bytes, 4096)); err != nil {
			return fmt.Errorf("the data at %d: %w", address, err)
		}
		delete(c.pieces, address)
		_, err := c.holder.Do("free %d", address)
		return err
	}
	return nil
}

func (m *monkey) fork(c *guest) error {
	child, err := c.holder.Number("fork")
	if err == nil {
		c.forks = append(c.forks, int(child))
	}
	return err
}

// end kills a client, and then its children.
func (m *monkey) end(i int) {
	c := m.clients[i]
	c.holder.Kill()
	for _, child := range c.forks {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	m.clients[i] = m.clients[len(m.clients)-1]
	m.clients = m.clients[:len(m.clients)-1]
}

func (m *monkey) step(ctx context.Context) error {
	dice := m.random.IntN(100)
	if len(m.clients) == 0 || (dice < 8 && len(m.clients) < 8) {
		m.done.did("start")
		return m.begin(ctx)
	}
	i := m.random.IntN(len(m.clients))
	c := m.clients[i]
	switch {
	case dice < 14:
		m.done.did("kill")
		m.end(i)
	case dice < 16:
		m.done.did("fork")
		return m.fork(c)
	case dice < 18:
		m.done.did("close")
		_, err := c.holder.Do("close")
		return err
	case dice < 20:
		m.done.did("threads")
		_, err := c.holder.Do("threads 4 50")
		return err
	case dice < 65:
		m.done.did("alloc")
		return m.alloc(c)
	default:
		m.done.did("free")
		return m.free(c)
	}
	return nil
}

func (m *monkey) run(ctx context.Context, until <-chan struct{}) error {
	defer func() {
		for len(m.clients) > 0 {
			m.end(0)
		}
	}()
	for {
		select {
		case <-until:
			return nil
		default:
		}
		if err := m.step(ctx); err != nil {
			return err
		}
	}
}

// Programs start, allocate, fork, close their descriptors and are killed while
// the agent is killed over and over. No call fails that should not, no share
// ever holds more than its quota, and in the end everything is free.
func TestChaos(t *testing.T) {
	t.Parallel()
	seconds := fromEnvironment(t, "DIVVY_CHAOS_SECONDS", 3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d seconds", seed, seconds)
	h := newHost(t, hostOptions{cards: "3xH100-80GB"})
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shares []api.Share
	for i, card := range devices.Cards {
		share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: fmt.Sprintf("chaos-%d", i), GPU: card.UUID, MemoryBytes: chaosQuota})
		if err != nil {
			t.Fatal(err)
		}
		shares = append(shares, share)
	}
	h.resetPeak(t)

	until := make(chan struct{})
	failures := make(chan error, 4)
	done := &deeds{times: map[string]int{}}
	var all sync.WaitGroup
	for i := range cap(failures) {
		m := &monkey{host: h, shares: shares, random: rand.New(rand.NewPCG(seed, uint64(i))), done: done}
		all.Go(func() {
			if err := m.run(t.Context(), until); err != nil {
				failures <- fmt.Errorf("monkey %d: %w", i, err)
			}
		})
	}
	killAgents(t, h, time.Duration(seconds)*time.Second, rand.New(rand.NewPCG(seed, 99)), done, failures)
	close(until)
	all.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	t.Logf("%v", done.times)
	checkPeace(t, h, shares)
}

// killAgents kills the agent every now and then, sometimes with its supervisor, for
// a while and until enough is done; it comes back early when a monkey fails.
func killAgents(t *testing.T, h *host, duration time.Duration, random *rand.Rand, done *deeds, failures chan error) {
	t.Helper()
	for end := time.Now().Add(duration); time.Now().Before(end) || !done.enough(); {
		pause := time.NewTimer(time.Duration(100+random.IntN(900)) * time.Millisecond)
		select {
		case err := <-failures:
			pause.Stop()
			t.Error(err)
			return
		case <-pause.C:
		}
		worker, err := h.client.Version(t.Context())
		if err != nil {
			t.Errorf("find the agent: %v", err)
			return
		}
		done.did("kill an agent")
		whole := random.IntN(4) == 0
		if whole {
			h.agent.kill()
		}
		if err := syscall.Kill(worker.PID, syscall.SIGKILL); err != nil {
			t.Errorf("kill the agent: %v", err)
			return
		}
		if whole {
			h.startAgent(t)
			continue
		}
		h.awaitWorker(t, worker.PID)
	}
}

// checkPeace looks at the shares after the storm.
func checkPeace(t *testing.T, h *host, shares []api.Share) {
	t.Helper()
	cards, err := h.truth(t).Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, card := range cards {
		if card.PeakUsedBytes > chaosQuota {
			t.Errorf("card %d: the driver saw %d bytes in use, quota %d", i, card.PeakUsedBytes, chaosQuota)
		}
		t.Logf("card %d: at most %d MiB of %d MiB in use", i, card.PeakUsedBytes/mib, chaosQuota/mib)
	}
	for _, share := range shares {
		eventually(t, "the share is free", func() error {
			if now := h.look(t, share.Name); now.UsedBytes != 0 || now.Clients != 0 {
				return fmt.Errorf("share %s: %d bytes used by %d clients", share.Name, now.UsedBytes, now.Clients)
			}
			return nil
		})
		holder := h.holder(t, share)
		do(t, holder, "start")
		alloc(t, holder, chaosQuota-contextBytes)
		refused(t, holder, outOfMemory, "alloc 1")
		holder.Kill()
		if err := h.client.DeleteShare(t.Context(), share.Name, true); err != nil {
			t.Error(err)
		}
	}
}
