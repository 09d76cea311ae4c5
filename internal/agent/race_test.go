// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// rounds is how many rounds a race takes; make soak asks for more.
func rounds(t *testing.T, usual int) int {
	text := os.Getenv("DIVVY_RACE_ROUNDS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("DIVVY_RACE_ROUNDS=%q: %v", text, err)
	}
	return n
}

// Two race for the last room, each with a part of it as credit or not: every
// round has exactly one winner, never two, never none.
func TestRaceForTheLastRoom(t *testing.T) {
	r := newRig(t)
	const limit, want = 1000 * wire.AllocationUnit, 600 * wire.AllocationUnit
	r.share(api.ShareSpec{Name: "s", MemoryBytes: 64 * mib})
	_, err := r.client.ChangeShare(context.Background(), "s", api.ShareChange{})
	must(t, err)
	filler := r.front("s")
	must(t, filler.alloc(64*mib-limit))
	racers := []*front{r.front("s"), r.front("s")}
	begun := time.Now()
	n := rounds(t, 2000)
	for round := range n {
		var group sync.WaitGroup
		var winners atomic.Int32
		var winner atomic.Pointer[front]
		start := make(chan struct{})
		for _, f := range racers {
			group.Go(func() {
				<-start
				err := f.alloc(want)
				if err == nil {
					winners.Add(1)
					winner.Store(f)
				} else if !errors.Is(err, errDenied) {
					t.Error(err)
				}
			})
		}
		close(start)
		group.Wait()
		if winners.Load() != 1 {
			t.Fatalf("round %d has %d winners", round, winners.Load())
		}
		winner.Load().free(want)
	}
	t.Logf("%d rounds, %v each", n, time.Since(begun)/time.Duration(n))
}

// The same between processes.
func TestRaceOfProcesses(t *testing.T) {
	r := newRig(t)
	const limit, want = 1000 * wire.AllocationUnit, 600 * wire.AllocationUnit
	r.share(api.ShareSpec{Name: "s", MemoryBytes: 64 * mib})
	filler := r.front("s")
	must(t, filler.alloc(64*mib-limit))
	racers := []*child{startChild(t, r.cfg.ShareSocket("s")), startChild(t, r.cfg.ShareSocket("s"))}
	for round := range rounds(t, 500) / 10 {
		for _, c := range racers {
			_, err := fmt.Fprintf(c.stdin, "alloc %d\n", want)
			must(t, err)
		}
		var answers []string
		for _, c := range racers {
			answers = append(answers, c.read())
		}
		won := slices.Index(answers, "ok")
		if slices.Sort(answers); !slices.Equal(answers, []string{"denied", "ok"}) {
			t.Fatalf("round %d: %v", round, answers)
		}
		if got := racers[won].do("free", want); got != "ok" {
			t.Fatal(got)
		}
	}
}

// Many threads of many clients take and give as fast as they can: what all
// use together never exceeds the limit, and all of it can be had at the end.
func TestGreedyCrowd(t *testing.T) {
	r := newRig(t)
	const limit = 64 * mib
	r.share(api.ShareSpec{Name: "s", MemoryBytes: limit})
	var used atomic.Int64
	var over atomic.Int64
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		f := r.front("s")
		for i := range 2 {
			group.Go(func() {
				for n := uint64(i + 1); ; n = n*6364136223846793005%limit + 1 {
					select {
					case <-stop:
						return
					default:
					}
					if err := f.alloc(n); err == nil {
						if sum := used.Add(int64(n)); sum > limit {
							over.Store(sum)
						}
						used.Add(-int64(n))
						f.free(n)
					} else if !errors.Is(err, errDenied) {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	<-time.After(500 * time.Millisecond)
	close(stop)
	group.Wait()
	if n := over.Load(); n > 0 {
		t.Errorf("%d of %d in use", n, limit)
	}
	last := r.front("s")
	must(t, last.alloc(limit))
	if err := last.alloc(1); !errors.Is(err, errDenied) {
		t.Errorf("one more: %v", err)
	}
}

func percentile(all []time.Duration, p int) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*p/100)]
}

// A storm of attachments, from many connections at once.
func TestStorm(t *testing.T) {
	r := newRig(t)
	r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
	const n = 300
	times := make([]time.Duration, n)
	var group sync.WaitGroup
	begun := time.Now()
	for i := range n {
		group.Go(func() {
			mine := time.Now()
			f, err := newFront(r.cfg.ShareSocket("s"))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(f.close)
			if err := f.alloc(mib); err != nil {
				t.Error(err)
			}
			times[i] = time.Since(mine)
		})
	}
	group.Wait()
	took := time.Since(begun)
	t.Logf("%d attachments with an allocation each: %v in all, p50 %v, p99 %v", n, took, percentile(times, 50), percentile(times, 99))
	got, err := r.client.Share(context.Background(), "s")
	must(t, err)
	if got.Clients != n || got.UsedBytes != n*mib {
		t.Errorf("%d clients use %d", got.Clients, got.UsedBytes)
	}
}
