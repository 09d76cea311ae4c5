// SPDX-License-Identifier: Apache-2.0

// Command attacker does to an agent, for tests, what a user's program may try against
// other users: each word names a kind of attack, and it does each once, in an order of
// chance, and again in another one, until its input ends. Then it prints how often it did which.
//
//	attacker --agent SOCKET [--share SOCKET] [--seed N] [--tools DIRECTORY] [--divvy PROGRAM] KIND...
//
// It needs no right that any user lacks, and uses the wire and the interface without
// the front library. DIVVY_SIMULATOR and a library path for the bare driver come in its
// environment.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/wire"
)

const mib = uint64(1) << 20

// attacker is one that attacks.
type attacker struct {
	agent, share, tools, divvy string
	client                     *client.Client
	random                     *rand.Rand
	own                        api.Share // a share of its own
	connections                int       // that it was given
}

// kinds are what it can do, each for a moment.
var kinds = map[string]func(*attacker, context.Context){
	"storm":    (*attacker).storm,
	"connects": (*attacker).connects,
	"claims":   (*attacker).claims,
	"places":   (*attacker).places,
	"lies":     (*attacker).lies,
	"past":     (*attacker).past,
	"events":   (*attacker).events,
	"handed":   (*attacker).handed,
	"churn":    (*attacker).churn,
	"jobs":     (*attacker).jobs,
	"rubbish":  (*attacker).rubbish,
	"burn":     (*attacker).burn,
	"priority": (*attacker).priority,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run() error {
	var a attacker
	seed := flag.Uint64("seed", 1, "of its decisions")
	flag.StringVar(&a.agent, "agent", "", "socket of the agent")
	flag.StringVar(&a.share, "share", "", "socket of a share, of others perhaps")
	flag.StringVar(&a.tools, "tools", "", "directory with burn and holder")
	flag.StringVar(&a.divvy, "divvy", "", "the command")
	flag.Parse()
	if flag.NArg() == 0 || a.agent == "" {
		return errors.New("name an agent's socket and what to do")
	}
	for _, kind := range flag.Args() {
		if kinds[kind] == nil {
			return fmt.Errorf("no attack %q; there are %s", kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
		}
	}
	a.client, a.random = client.New(a.agent), rand.New(rand.NewPCG(*seed, uint64(os.Getuid())))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	hold, err := a.ownShare(ctx)
	if err != nil {
		return err
	}
	defer hold.Close()
	fmt.Println("ready", os.Getpid())
	done, order := map[string]int{}, []int(nil)
	for ctx.Err() == nil {
		if len(order) == 0 {
			order = a.random.Perm(flag.NArg())
		}
		kind := flag.Arg(order[0])
		order = order[1:]
		moment, stop := context.WithTimeout(ctx, a.between(200*time.Millisecond, 2*time.Second))
		kinds[kind](&a, moment)
		stop()
		done[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(done)) {
		fmt.Println(kind, done[kind])
	}
	fmt.Println("connections", a.connections)
	return nil
}

func (a *attacker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.random.Int64N(int64(most-least)))
}

// ownShare makes a share as any user may.
func (a *attacker) ownShare(ctx context.Context) (*client.Hold, error) {
	var err error
	spec := api.ShareSpec{Ephemeral: true, MemoryBytes: 256 * mib, Policy: share.Fixed, CoresPercent: 5}
	for range 50 { // others' storms
		if a.own, err = a.client.CreateShare(ctx, spec); err == nil {
			var hold *client.Hold
			if hold, err = a.client.Hold(ctx, a.own.Name); err == nil {
				return hold, nil
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil, fmt.Errorf("make a share: %w", err)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// target is the socket of its own share, or of another's.
func (a *attacker) target() string {
	if a.share != "" && a.random.IntN(2) == 0 {
		return a.share
	}
	return a.own.Socket
}

// storm connects and hangs up, as fast as it can, to the interface and to a share.
func (a *attacker) storm(ctx context.Context) {
	for ctx.Err() == nil {
		for range 100 {
			if file, err := connect(a.agent, syscall.SOCK_STREAM); err == nil {
				_ = syscall.Close(file)
				a.connections++
			}
			if file, err := connect(a.target(), syscall.SOCK_SEQPACKET); err == nil {
				_ = syscall.Close(file)
				a.connections++
			}
		}
	}
}

// connects keeps as many connections as it gets, and says nothing.
func (a *attacker) connects(ctx context.Context) {
	var files []int
	for i := 0; len(files) < 1500 && ctx.Err() == nil && i < 3000; i++ {
		path, kind := a.agent, syscall.SOCK_STREAM
		if i%2 == 0 {
			path, kind = a.target(), syscall.SOCK_SEQPACKET
		}
		if file, err := connect(path, kind); err == nil {
			files = append(files, file)
		}
	}
	<-ctx.Done()
	for _, file := range files {
		_ = syscall.Close(file)
	}
}

// claims comes back with tokens of its own making.
func (a *attacker) claims(ctx context.Context) {
	var kept []*attached
	for ctx.Err() == nil && len(kept) < 100 {
		claim := wire.Message{Token: a.random.Uint64()}
		claim.Bytes[0] = 1 << (20 + a.random.IntN(44))
		if c, err := attach(a.own.Socket, claim); err == nil {
			kept = append(kept, c)
		}
	}
	for _, c := range kept {
		c.close()
	}
}

// places attaches and hangs up, while the driver shows more of this process than was
// ever asked for, or keeps all that it gets.
func (a *attacker) places(ctx context.Context) {
	var kept []*attached
	keep := a.random.IntN(2) == 0
	for ctx.Err() == nil {
		c, err := attach(a.target(), wire.Message{})
		switch {
		case err != nil:
		case keep && len(kept) < 500:
			kept = append(kept, c)
		default:
			c.close()
		}
	}
	for _, c := range kept {
		c.close()
	}
}

// lies says what it likes on its own page, and wants the GPU all the time.
func (a *attacker) lies(ctx context.Context) {
	c, err := attach(a.own.Socket, wire.Message{})
	if err != nil {
		return
	}
	defer c.close()
	how := a.random.IntN(5)
	for ctx.Err() == nil {
		switch how {
		case 0: // work that never ends
			c.put(wire.ClientCardOffsetInFlightNs, 1)
			c.put(wire.ClientCardOffsetDrainNs, monotonic()+1e12)
			c.put(wire.ClientCardOffsetKernelNs, 1e9)
		case 1: // all that a word holds
			for word := wire.ClientCardOffsetBusyNs; word < wire.ClientCardSize; word += 8 {
				c.put(word, ^uint64(0))
			}
		case 2: // time that goes back
			c.put(wire.ClientCardOffsetBusyNs, a.random.Uint64())
			c.put(wire.ClientCardOffsetSpanNs, a.random.Uint64())
		case 3: // anything anywhere
			c.put(8*a.random.IntN(wire.ClientCardSize/8), a.random.Uint64())
		default: // hoards its turns
		}
		_ = c.send(wire.Message{Type: wire.LeaseWant})
		if a.random.IntN(4) == 0 {
			_ = c.send(wire.Message{Type: wire.LeaseBack})
		}
		pause(ctx, a.between(100*time.Microsecond, 2*time.Millisecond))
	}
}

// past takes memory from the bare driver, which no ledger knows.
func (a *attacker) past(ctx context.Context) {
	a.hold(ctx, os.Environ(), "start", fmt.Sprintf("alloc %d", (1+a.random.Uint64N(2048))*mib))
}

// hold has a holder do something, and kills it.
func (a *attacker) hold(ctx context.Context, env []string, lines ...string) {
	command := exec.CommandContext(ctx, filepath.Join(a.tools, "holder"))
	command.Env = env
	in, err := command.StdinPipe()
	if err != nil || command.Start() != nil {
		return
	}
	for _, line := range lines {
		fmt.Fprintln(in, line)
	}
	_ = command.Wait() // killed when the moment is over
}

// events does what the agent tells of, without end.
func (a *attacker) events(ctx context.Context) {
	c, err := attach(a.own.Socket, wire.Message{})
	if err != nil {
		return
	}
	defer c.close()
	for ctx.Err() == nil {
		for _, m := range []wire.Message{
			{Type: wire.Event, Kind: wire.EventDriverOOM, Amount: a.random.Uint64()},
			{Type: wire.Event, Kind: wire.EventHidden},
			{Type: wire.Charge, Kind: wire.ChargeFinal, Amount: 1 << 62},
		} {
			if c.send(m) != nil {
				return
			}
		}
		c.drain()
		if more, err := attach(a.own.Socket, wire.Message{}); err == nil {
			more.close()
		}
	}
}

// handed gives memory names, takes what has one, of its own share and of another, and lets it go,
// more often than there is place for: in words, and by pipes of which it keeps an end or none.
func (a *attacker) handed(ctx context.Context) {
	var all []*attached
	for _, path := range []string{a.own.Socket, a.target()} {
		if c, err := attach(path, wire.Message{}); err == nil {
			defer c.close()
			all = append(all, c)
		}
	}
	for ctx.Err() == nil && len(all) > 0 {
		c := all[a.random.IntN(len(all))]
		m := wire.Message{Type: []uint16{wire.Charge, wire.Name, wire.Name, wire.Import, wire.Release}[a.random.IntN(5)],
			Amount: 4096 * (1 + a.random.Uint64N(16))}
		if m.Type == wire.Release || m.Type == wire.Name && a.random.IntN(2) == 0 { // else it is new
			m.Token = c.numbers[a.random.IntN(len(c.numbers))]
		}
		m.Text[0], m.Text[1] = byte(a.random.IntN(8)), byte(a.random.Uint32()) // a name, where it is in words
		var err error
		if m.Type != wire.Name && m.Type != wire.Import {
			err = c.send(m)
		} else if m.Kind = wire.NameDescriptor + uint32(a.random.IntN(4)); m.Kind != wire.NameDescriptor {
			err = c.send(m)
		} else {
			err = c.sendPipe(m, a.random.IntN(2) == 0)
		}
		if c.drain(); err != nil && !errors.Is(err, syscall.EAGAIN) {
			return
		}
	}
}

// churn makes shares and deletes them.
func (a *attacker) churn(ctx context.Context) {
	for ctx.Err() == nil {
		s, err := a.client.CreateShare(ctx, api.ShareSpec{Ephemeral: true, MemoryBytes: a.random.Uint64N(64) * mib})
		if err == nil && a.random.IntN(8) > 0 {
			_ = a.client.DeleteShare(ctx, s.Name, true)
		}
	}
}

// jobs stops, continues and kills what it runs under shares.
func (a *attacker) jobs(ctx context.Context) {
	command := exec.Command(a.divvy, "run", "--agent", a.agent, "--mem", "128MiB", "--", "sleep", "60")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if command.Start() != nil {
		return
	}
	group := -command.Process.Pid
	for ctx.Err() == nil {
		pause(ctx, a.between(10*time.Millisecond, 200*time.Millisecond))
		_ = syscall.Kill(group, []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTSTP}[a.random.IntN(3)])
	}
	if a.random.IntN(2) == 0 {
		_ = command.Process.Kill() // its command stays, stopped
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	_ = command.Wait()
}

// rubbish sends what makes no sense, and more than anybody should read.
func (a *attacker) rubbish(ctx context.Context) {
	for ctx.Err() == nil {
		path, kind := a.agent, syscall.SOCK_STREAM
		packet := []byte(fmt.Sprintf("POST /v1/shares HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n%s",
			a.random.Uint64()>>a.random.IntN(64), strings.Repeat("[", a.random.IntN(60000))))
		if a.random.IntN(2) == 0 {
			path, kind = a.target(), syscall.SOCK_SEQPACKET
			packet = encode(wire.Message{Type: uint16(a.random.IntN(20)), Slot: uint32(a.random.IntN(3)), Kind: uint32(a.random.IntN(30)), Amount: a.random.Uint64()})
		}
		for range a.random.IntN(4) {
			packet[a.random.IntN(len(packet))] = byte(a.random.IntN(256))
		}
		file, err := connect(path, kind)
		if err != nil {
			continue
		}
		for range 1 + a.random.IntN(4) {
			_, _ = syscall.Write(file, packet) // SIGPIPE is Go's to overlook
		}
		_ = syscall.Close(file)
	}
}

// burn uses all the GPU's time that it gets, held as it should be, and is killed.
func (a *attacker) burn(ctx context.Context) {
	us := []string{"20", "300", "2000", "15000"}[a.random.IntN(4)]
	command := exec.CommandContext(ctx, a.divvy, "run", "--agent", a.agent, "--mem", "128MiB", "--", filepath.Join(a.tools, "burn"), "--us", us)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// With its command, which would go on: the host's processors are not ours to divide.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	_ = command.Run()
}

// priority asks to go before all others.
func (a *attacker) priority(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = a.client.CreateShare(ctx, api.ShareSpec{Ephemeral: true, Priority: 1 + a.random.IntN(2000)})
		most := 1000
		_, _ = a.client.ChangeShare(ctx, a.own.Name, api.ShareChange{Priority: &most})
	}
}
