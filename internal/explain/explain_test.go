// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

const (
	card  = "GPU-1c2dabcd-0000-0000-0000-000000000001"
	other = "GPU-2c2dabcd-0000-0000-0000-000000000002"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func of[T any](v T) *T { return &v }

// scene is four seconds of a GPU with a share "a" of one process, 10, which had half of the GPU
// and waited for nothing.
type scene struct {
	before, now api.Snapshot
	events      []api.Event
}

// Over four seconds, so much of the time is one percent.
const onePercent = uint64(40 * time.Millisecond)

func newScene() *scene {
	s := &scene{
		before: api.Snapshot{Life: "x", Number: 1, Time: noon.Add(-4 * time.Second), MonotonicNs: 1e12},
		now:    api.Snapshot{Life: "x", Number: 5, Time: noon, MonotonicNs: 1e12 + 4e9, Agent: api.SnapshotAgent{QuantumNs: uint64(10 * time.Millisecond)}},
	}
	for _, snapshot := range []*api.Snapshot{&s.before, &s.now} {
		snapshot.Cards = []api.SnapshotCard{
			{UUID: card, Name: "H100", PCIAddress: "0000:01:00.0", Health: "ok", Managed: true, Answers: true, MemoryBytes: 80 * size.GiB, FreeToBookBytes: 8 * size.GiB, Shares: 1,
				Instruments: &api.Instruments{BusyPercent: of(50.0), Slowed: &api.Slowed{}, SlowedFor: &api.SlowedFor{}, TemperatureC: of(91.0), SMClockMHz: of(990.0)},
				Time:        &api.CardTime{}},
			{UUID: other, Name: "H100", Health: "ok"},
		}
	}
	s.share("a", 10, 50, 0)
	return s
}

// share adds a share with one process of this id, which had so much of the time and waited for
// so much of it.
func (s *scene) share(name string, pid int, own, wait uint64) *api.SnapshotShare {
	for i, snapshot := range []*api.Snapshot{&s.before, &s.now} {
		n := uint64(i)
		time, waited, launches := 7e9+n*own*onePercent, n*wait*onePercent, 100+n*(own+wait)
		snapshot.Shares = append(snapshot.Shares, api.SnapshotShare{Name: name, Promised: true, Policy: terms.BestEffort, CoresPercent: 100, Weight: 1, State: "active",
			Enforcement: terms.EnforcedFront, Created: noon.Add(-time2h), Clients: 1,
			Cards: []api.SnapshotSlot{{CardUUID: card, LimitBytes: 8 * size.GiB, UsedBytes: size.GiB, ContextBytes: 64 * size.MiB, CardTimeNs: &time, WaitNs: &waited,
				Launches: &launches, Gated: true, KernelNs: of(uint64(2e6)), Denials: map[string]uint64{}}},
			Processes: []api.SnapshotProcess{{PID: pid, Command: "train", State: "attached", Since: noon.Add(-time2h), Enforcement: terms.EnforcedFront,
				Cards: []api.ProcessSlot{{CardTimeNs: time, WaitNs: waited, Launches: launches, KernelNs: of(uint64(2e6))}}}},
		})
		snapshot.Cards[0].ShareTimeNs += time
	}
	return s.find(name)
}

const time2h = 2 * time.Hour

// find is a share as it is now.
func (s *scene) find(name string) *api.SnapshotShare {
	for i := range s.now.Shares {
		if s.now.Shares[i].Name == name {
			return &s.now.Shares[i]
		}
	}
	return nil
}

// took says how much of the time a share had and waited.
func (s *scene) took(name string, own, wait uint64) *api.SnapshotShare {
	for i := range s.before.Shares {
		if was := &s.before.Shares[i]; was.Name == name {
			is := &s.now.Shares[i]
			s.now.Cards[0].ShareTimeNs += *was.Cards[0].CardTimeNs + own*onePercent - *is.Cards[0].CardTimeNs
			is.Cards[0].CardTimeNs, is.Cards[0].WaitNs = of(*was.Cards[0].CardTimeNs+own*onePercent), of(*was.Cards[0].WaitNs+wait*onePercent)
			is.Cards[0].Launches = of(*was.Cards[0].Launches + own + wait)
			for n := range is.Processes {
				is.Processes[n].Cards[0].CardTimeNs = *is.Cards[0].CardTimeNs / uint64(len(is.Processes))
				is.Processes[n].Cards[0].WaitNs, is.Processes[n].Cards[0].Launches = *is.Cards[0].WaitNs, *is.Cards[0].Launches
			}
			return is
		}
	}
	return nil
}

func (s *scene) unaccounted() {
	for _, snapshot := range []*api.Snapshot{&s.before, &s.now} {
		snapshot.Cards[0].Unaccounted = []api.CardUnaccounted{{PID: 77, Command: "python", UID: of(1000), Bytes: 20 * size.GiB}}
	}
}

func (s *scene) busy(percent float64) {
	for _, snapshot := range []*api.Snapshot{&s.before, &s.now} {
		snapshot.Cards[0].Instruments.BusyPercent = &percent
	}
}

func (s *scene) tell(kind event.Kind, e api.Event) {
	e.Sequence, e.Kind, e.CardUUID = uint64(len(s.events)+1), kind, card
	if e.Time.IsZero() {
		e.Time = noon.Add(-10 * time.Second)
	}
	s.events = append(s.events, e)
}

func (s *scene) why(word string) (Report, error) {
	subject, err := Find(s.now, word)
	if err != nil {
		return Report{}, err
	}
	return Explain(Look{Before: &s.before, Now: s.now, Events: s.events}, subject), nil
}

// cases stage each cause, and each has a twin that differs in what makes it one.
var cases = []struct {
	name    string
	stage   func(*scene)
	subject string // empty: the share a
	first   Name
	percent float64 // -1: none
	says    []string
	command string
}{
	{"paused", func(s *scene) {
		s.find("a").State = "paused"
		s.tell(event.SharePaused, api.Event{Share: "a"})
	}, "", Paused, 100, []string{"paused", "event 1, share-paused, 2026-11-28T11:59:50Z"}, "divvy share resume a"},
	{"not paused", func(s *scene) { s.tell(event.SharePaused, api.Event{Share: "a"}) }, "", Nothing, 50, nil, ""},

	{"deleted", func(s *scene) { s.find("a").State = "revoked" }, "", Deleted, -1, nil, "divvy share create a"},

	{"fixed quota", func(s *scene) {
		is := s.took("a", 30, 69)
		is.Policy, is.CoresPercent = terms.Fixed, 30
		s.now.Cards[0].CoresBooked = 30
	}, "", FixedQuota, 69, []string{"fixed, 30 %", "it had 30 %", "waited for 69 % of 4 s"}, "divvy share set a --cores 100"},
	{"fixed quota of a full GPU", func(s *scene) {
		is := s.took("a", 30, 69)
		is.Policy, is.CoresPercent = terms.Fixed, 30
		s.now.Cards[0].CoresBooked = 100
	}, "10", FixedQuota, 69, nil, "divvy share set a --policy weighted"},
	{"fixed quota that is not used up", func(s *scene) {
		is := s.took("a", 20, 5)
		is.Policy, is.CoresPercent = terms.Fixed, 30
	}, "", Nothing, 20, []string{"hardly launches"}, "top -H -p 10"},
	{"fixed quota, late host", func(s *scene) {
		is := s.took("a", 20, 70)
		is.Policy, is.CoresPercent = terms.Fixed, 30
		s.now.Cards[0].Time.Idle.AgentLateNs = 30 * onePercent
	}, "", HostLate, 30, []string{"too late"}, "divvy doctor"},

	{"higher priority", func(s *scene) {
		s.took("a", 15, 80)
		s.share("b", 20, 83, 3).Priority = 10
	}, "", HigherPriority, 83, []string{"83 % of the GPU (b: priority 10, its own is 0)", "waited for 80 %"}, "divvy share set a --priority 10"},
	{"higher priority that wants nothing", func(s *scene) {
		s.took("a", 50, 20)
		s.share("b", 20, 0, 0).Priority = 10
		s.share("c", 30, 50, 20)
	}, "", EqualSharing, 50, nil, "divvy share set a --policy weighted --weight 2"},
	{"lower priority", func(s *scene) {
		s.took("a", 90, 2).Priority = 10
		s.share("b", 20, 8, 80)
	}, "", GPUBusy, 90, []string{"the GPU is as fast as that"}, "divvy devices"},
	{"lower priority on a busy host", func(s *scene) {
		s.took("a", 85, 40).Priority = 10
		s.share("b", 20, 8, 80)
	}, "", GPUBusy, 85, []string{"waited for 40 %"}, ""},

	{"equal sharing", func(s *scene) {
		s.took("a", 34, 60)
		s.share("b", 20, 33, 60)
		s.share("c", 30, 33, 60)
		for i := range s.now.Shares {
			s.now.Shares[i].Policy = terms.Equal
		}
	}, "", EqualSharing, 66, []string{"same weight had 66 % of the GPU (b, c)"}, "divvy share set a --policy weighted --weight 2"},
	{"equal sharing of a GPU without leases", func(s *scene) {
		s.took("a", 50, 0).Cards[0].Gated = false
		s.share("b", 20, 49, 0).Cards[0].Gated = false
	}, "10", EqualSharing, 49, []string{"the driver gives the GPU to programs in turns"}, ""},
	{"equal shares that want little", func(s *scene) {
		s.took("a", 34, 4).Policy = terms.Equal
		s.share("b", 20, 33, 4).Policy = terms.Equal
	}, "", Nothing, 34, nil, ""},
	{"weights", func(s *scene) {
		s.took("a", 25, 70).Policy = terms.Equal
		is := s.share("b", 20, 75, 20)
		is.Policy, is.Weight = terms.Weighted, 3
	}, "", Weights, 75, nil, "divvy share set a --policy weighted --weight 6"},
	{"fixed neighbours", func(s *scene) {
		s.took("a", 25, 70)
		is := s.share("b", 20, 75, 20)
		is.Policy, is.CoresPercent = terms.Fixed, 75
	}, "", FixedNeighbours, 75, nil, "divvy share set b --cores 37"},

	{"a neighbour's long kernels", func(s *scene) {
		s.took("a", 20, 70)
		s.share("b", 20, 75, 10).Cards[0].KernelNs = of(uint64(500 * time.Millisecond))
	}, "", LongKernels, 75, []string{"cannot be interrupted had 75 % of the GPU (b: kernels of up to 500 ms)"}, "divvy share pause b"},
	{"long kernels of a lower priority", func(s *scene) {
		s.took("a", 60, 35).Priority = 10
		s.share("b", 20, 35, 60).Cards[0].KernelNs = of(uint64(100 * time.Millisecond))
	}, "", LongKernels, 35, nil, ""},
	{"a neighbour's kernel that outlasts all looks", func(s *scene) {
		s.took("a", 1, 99)
		s.share("b", 20, 0, 0)
		s.tell(event.LeaseOverrun, api.Event{Share: "b"})
	}, "", LongKernels, 0, []string{"lease-overrun"}, ""},
	{"short kernels that outlast a lease", func(s *scene) {
		s.took("a", 50, 45).Cards[0].KernelNs = of(uint64(300 * time.Millisecond))
		s.share("b", 20, 49, 45).Cards[0].Overruns = 3
		s.tell(event.LeaseOverrun, api.Event{Share: "b"})
	}, "", EqualSharing, 49, nil, ""},
	{"a neighbour that is stuck", func(s *scene) {
		s.took("a", 1, 99)
		s.share("b", 20, 0, 0).Processes[0].Cards[0].StuckNs = of(uint64(45e9))
	}, "", LongKernels, 0, []string{"nothing of it has ended for 45 s"}, ""},
	{"kernels as long as its own", func(s *scene) {
		s.took("a", 50, 45).Cards[0].KernelNs = of(uint64(500 * time.Millisecond))
		s.share("b", 20, 49, 45).Cards[0].KernelNs = of(uint64(500 * time.Millisecond))
	}, "", EqualSharing, 49, nil, ""},
	{"an overrun of long ago", func(s *scene) {
		s.took("a", 50, 45)
		s.share("b", 20, 49, 45)
		s.tell(event.LeaseOverrun, api.Event{Share: "b", Time: noon.Add(-time.Hour)})
	}, "", EqualSharing, 49, nil, ""},

	{"the same share", func(s *scene) {
		is := s.took("a", 100, 50)
		is.Processes = append(is.Processes, api.SnapshotProcess{PID: 11, State: "attached", Since: noon, Enforcement: terms.EnforcedFront,
			Cards: []api.ProcessSlot{{CardTimeNs: 60 * onePercent}}})
		is.Processes[0].Cards[0].CardTimeNs = 7e9 + 40*onePercent
	}, "10", SameShare, 60, []string{"1 other processes"}, ""},

	{"over memory", func(s *scene) {
		s.find("a").Cards[0].UsedBytes = 7 * size.GiB
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 2 * size.GiB, Message: "cuMemAlloc of 2GiB denied: 1GiB free of 8GiB"})
	}, "", OverMemory, 87.5, []string{"cuMemAlloc of 2GiB denied", "event 1, denied", "7GiB of 8GiB"}, "divvy share set a --mem 10GiB"},
	{"over memory, by counters", func(s *scene) {
		s.find("a").Cards[0].Denials["over-quota"] = 3
	}, "", OverMemory, 12.5, []string{"3 allocations were refused in 4 s (over-quota)"}, "divvy share set a --mem 8GiB"},
	{"over memory of a full GPU", func(s *scene) {
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 20 * size.GiB})
	}, "10", OverMemory, 12.5, []string{"the GPU has 8GiB left to promise"}, "divvy share list"},
	{"another one was denied", func(s *scene) {
		s.share("b", 20, 0, 0)
		s.tell(event.Denied, api.Event{Share: "b", PID: 20, Bytes: 2 * size.GiB})
		s.find("b").Cards[0].Denials["over-quota"] = 3
	}, "", Nothing, 50, nil, ""},
	{"denied long ago", func(s *scene) {
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 2 * size.GiB, Time: noon.Add(-time.Hour)})
	}, "", Nothing, 50, nil, ""},

	{"contexts", func(s *scene) {
		is := s.find("a")
		is.Clients, is.Cards[0].LimitBytes, is.Cards[0].UsedBytes, is.Cards[0].ContextBytes = 4, 300*size.MiB, 280*size.MiB, 256*size.MiB
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 64 * size.MiB})
	}, "", Contexts, 85.3, []string{"contexts of 4 processes take 256MiB of 300MiB"}, "divvy share set a --mem 556MiB"},
	{"contexts that leave room", func(s *scene) {
		s.find("a").Cards[0].ContextBytes = 5 * size.GiB
	}, "", Nothing, 50, nil, ""},

	{"shrinking", func(s *scene) {
		is := s.find("a")
		is.State, is.Cards[0].LimitBytes = "shrinking", 512*size.MiB
		s.tell(event.ShareShrinking, api.Event{Share: "a"})
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 1})
	}, "", Shrinking, 200, []string{"lowered to 512MiB and it uses 1GiB", "until it has freed 512MiB", "event 1, share-shrinking"}, "divvy share set a --mem 1GiB"},

	{"hot card", func(s *scene) {
		i := s.now.Cards[0].Instruments
		i.Slowed, i.SlowedFor = &api.Slowed{Thermal: true, Hardware: true}, &api.SlowedFor{ThermalNs: 80 * onePercent}
		s.took("a", 50, 50)
		s.share("b", 20, 50, 50)
	}, "", HotCard, 80, []string{"slowed down by heat at 91 C, 990 MHz"}, "divvy devices cordon " + card + ` --reason "slowed down"`},
	{"a card that was hot", func(s *scene) { s.now.Cards[0].Instruments.SlowedFor = &api.SlowedFor{ThermalNs: 5} }, card, Nothing, 50, nil, ""},
	{"power", func(s *scene) { s.now.Cards[0].Instruments.Slowed = &api.Slowed{Power: true} }, "", PowerLimit, 0, nil, ""},

	{"lost card", func(s *scene) {
		c := &s.now.Cards[0]
		c.Health, c.HealthDetail = "lost", "it has fallen off the bus"
		c.Cordon = &api.Cordon{Since: noon, Automatic: true}
		s.tell(event.CardLost, api.Event{})
	}, "", LostCard, 100, []string{"fallen off the bus", "event 1, card-lost"}, "nvidia-smi --gpu-reset -i " + card},
	{"lost card, simulated", func(s *scene) { s.now.Cards[0].Health, s.now.Cards[0].Simulated = "lost", true }, card, LostCard, 100, nil,
		"divvy simulate fault clear --gpu " + card},
	{"needs a reset", func(s *scene) { s.now.Cards[0].Health = "needs-reset" }, "10", NeedsReset, 100, nil, ""},
	{"does not answer", func(s *scene) { s.now.Cards[0].Health = "unresponsive" }, "", Unresponsive, 100, nil, ""},
	{"divided", func(s *scene) { s.now.Cards[0].Health = "unshareable" }, "", Unshareable, 100, nil, "divvy partition show"},
	{"another card is lost", func(s *scene) { s.now.Cards[1].Health = "lost" }, "", Nothing, 50, nil, ""},

	{"cordoned", func(s *scene) {
		s.now.Cards[0].Cordon = &api.Cordon{Since: noon, Reason: "loud fan", UID: of(0)}
		s.tell(event.CardCordoned, api.Event{})
	}, "gpu-1c2d", Cordoned, -1, []string{"user 0 cordoned", "loud fan", "event 1, card-cordoned"}, "divvy devices uncordon " + card},
	{"a share on a cordoned card", func(s *scene) { s.now.Cards[0].Cordon = &api.Cordon{Since: noon} }, "", Nothing, 50, nil, ""},
	{"a card that is not cordoned", func(*scene) {}, "0000:01:00.0", Nothing, 50, []string{"50 launches of 1 shares in 4 s had it for 50 %"}, "divvy ps"},

	{"an unaccounted process takes time", func(s *scene) {
		s.unaccounted()
		s.busy(100)
	}, "", Stranger, 50, []string{"process 77 (python) of user 1000", "holds 20GiB", "50 % of the time went to no share"}, "kill 77"},
	{"an unaccounted process takes time that is not known", func(s *scene) {
		s.unaccounted()
		s.busy(100)
		s.took("a", 99, 0)
	}, "", Stranger, 25, []string{"not known"}, "kill 77"},
	{"an unaccounted process takes memory", func(s *scene) {
		s.unaccounted()
		s.find("a").Promised = false
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 10 * size.GiB})
	}, "", Stranger, 25, []string{"no promise of memory"}, "kill 77"},
	{"an unaccounted process that has less than was asked for", func(s *scene) {
		s.unaccounted()
		s.find("a").Promised = false
		s.tell(event.Denied, api.Event{Share: "a", PID: 10, Bytes: 60 * size.GiB})
	}, "", OverMemory, 12.5, nil, "divvy ps -o wide"},
	{"the driver is out of memory", func(s *scene) {
		s.unaccounted()
		s.tell(event.DriverOutOfMemory, api.Event{Share: "a", PID: 10, Bytes: size.GiB})
	}, "10", Stranger, 25, []string{"the driver refused 1GiB though the quota had room"}, "kill 77"},
	{"an unaccounted process that does nothing", func(s *scene) { s.unaccounted() }, "", Nothing, 50, nil, ""},
	{"an unaccounted process on the card", func(s *scene) { s.unaccounted() }, card, Stranger, 25, nil, "kill 77"},
	{"an unaccounted process itself", func(s *scene) { s.unaccounted() }, "77", NotHeld, -1, []string{"holds 20GiB", "under no share"}, "divvy run --gpu " + card + " -- COMMAND"},

	{"not held", func(s *scene) {
		is := s.find("a")
		is.Enforcement, is.EnforcementWhy = terms.Booked, "no folder to keep the library in"
		is.Processes[0].Enforcement, is.Cards[0].CardTimeNs = terms.Booked, nil
	}, "", NotHeld, -1, []string{"level booked", "no folder to keep the library in"}, "divvy doctor"},
	{"one process is not held", func(s *scene) {
		is := s.find("a")
		is.Processes = append(is.Processes, api.SnapshotProcess{PID: 11, Command: "burn", Enforcement: terms.Booked, Cards: []api.ProcessSlot{{}}})
	}, "11", NotHeld, -1, []string{"process 11 (burn)"}, ""},
	{"held by MPS", func(s *scene) {
		s.find("a").Enforcement, s.find("a").Processes[0].Enforcement = terms.EnforcedMPS, terms.EnforcedMPS
	}, "", Nothing, 50, nil, ""},

	{"stuck", func(s *scene) {
		s.find("a").Processes[0].Cards[0].StuckNs = of(uint64(31e9))
		s.tell(event.ClientStuck, api.Event{Share: "a", PID: 10})
	}, "", Stuck, 100, []string{"process 10 (train) launched has ended for 31 s", "event 1, client-stuck"}, "kill 10"},
	{"stuck on a card", func(s *scene) { s.find("a").Processes[0].Cards[0].StuckNs = of(uint64(31e9)) }, card, Stuck, 100, nil, "kill 10"},
	{"was stuck", func(s *scene) { s.tell(event.ClientStuck, api.Event{Share: "a", PID: 10}) }, "", Nothing, 50, nil, ""},

	{"detached", func(s *scene) { s.find("a").Processes[0].State = "detached" }, "", Detached, -1, nil, "kill 10"},
	{"no program", func(s *scene) {
		s.find("a").Processes, s.find("a").Clients = nil, 0
	}, "", Nothing, -1, []string{"no program"}, "divvy run --share a -- COMMAND"},
	{"nothing", func(s *scene) { s.took("a", 1, 0) }, "10", Nothing, 1, []string{"1 launches in 4 s"}, "top -H -p 10"},
	{"one snapshot", func(s *scene) { s.before.Life = "y" }, "", Nothing, -1, []string{"one snapshot only"}, "divvy why a"},
	{"a GPU whose shares have used up their parts", func(s *scene) {
		s.now.Cards[0].Time.Idle.IneligibleNs = 70 * onePercent
	}, card, FixedQuota, 70, nil, "divvy share list"},
}

func TestFirstCause(t *testing.T) {
	seen := map[Name]bool{}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.stage(s)
			subject := c.subject
			if subject == "" {
				subject = "a"
			}
			report, err := s.why(subject)
			if err != nil {
				t.Fatal(err)
			}
			first := report.Causes[0]
			seen[first.Cause] = true
			if first.Cause != c.first || c.command != "" && first.Command != c.command || first.Command == "" {
				t.Errorf("%+v", report.Causes)
			}
			if c.percent < 0 && first.Percent != nil || c.percent > 0 && (first.Percent == nil || *first.Percent != c.percent) {
				t.Errorf("percent %v, want %v", first.Percent, c.percent)
			}
			for _, want := range c.says {
				if !strings.Contains(first.Evidence, want) {
					t.Errorf("%q lacks %q", first.Evidence, want)
				}
			}
			if again, _ := s.why(subject); !reflect.DeepEqual(again, report) {
				t.Error("asked again it says something else")
			}
		})
	}
	for _, name := range Names() {
		if !seen[name] {
			t.Errorf("no case is %s", name)
		}
	}
}

// Every cause has a row in the document, and every row is a cause.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []Name
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			rows = append(rows, Name(name))
		}
	}
	want := Names()
	slices.Sort(rows)
	slices.Sort(want)
	if !slices.Equal(rows, want) {
		t.Errorf("%q, want %q", rows, want)
	}
}

// A share over two GPUs is told what limits it on each.
func TestTwoCards(t *testing.T) {
	s := newScene()
	for _, snapshot := range []*api.Snapshot{&s.before, &s.now} {
		slot := snapshot.Shares[0].Cards[0]
		slot.CardUUID = other
		snapshot.Shares[0].Cards = append(snapshot.Shares[0].Cards, slot)
	}
	s.now.Cards[1].Health = "lost"
	s.find("a").State = "paused"
	report, err := s.why("a")
	if err != nil || len(report.Causes) != 2 || report.Causes[0].Cause != LostCard || report.Causes[0].CardUUID != other || report.Causes[1].Cause != Paused {
		t.Errorf("%+v %v", report, err)
	}
}

func TestFind(t *testing.T) {
	s := newScene()
	s.share("77", 20, 0, 0)
	s.unaccounted()
	for word, want := range map[string]Subject{
		"a": {Kind: Share, Name: "a"}, "77": {Kind: Share, Name: "77"}, "10": {Kind: Process, Name: "10", Share: "a", PID: 10},
		"1c2d": {Kind: Card, Name: card, Card: card}, other: {Kind: Card, Name: other, Card: other},
	} {
		if got, err := Find(s.now, word); got != want || err != nil {
			t.Errorf("%q: %+v %v", word, got, err)
		}
	}
	var none *NotFoundError
	if _, err := Find(s.now, "b"); !errors.As(err, &none) || !slices.Contains(none.Near, "a") {
		t.Errorf("%v %+v", err, none)
	}
	if _, err := Find(s.now, "99999"); !errors.As(err, &none) {
		t.Error(err)
	}
	var several *AmbiguousError
	if _, err := Find(s.now, "GPU-"); !errors.As(err, &several) || len(several.GPUs) != 2 {
		t.Errorf("%v %+v", err, several)
	}
}

// Whatever an agent answers, there is an explanation: a cause, an evidence and a command.
func FuzzExplain(f *testing.F) {
	for _, c := range cases {
		s := newScene()
		c.stage(s)
		before, _ := json.Marshal(s.before)
		now, _ := json.Marshal(s.now)
		events, _ := json.Marshal(s.events)
		f.Add(before, now, events)
		for i := range s.now.Shares { // more of a process than its share is on
			for j := range s.now.Shares[i].Processes {
				p := &s.now.Shares[i].Processes[j]
				p.Cards = append(p.Cards, api.ProcessSlot{StuckNs: new(uint64(time.Minute))})
			}
		}
		now, _ = json.Marshal(s.now)
		f.Add(before, now, events)
	}
	f.Fuzz(func(t *testing.T, before, now, events []byte) {
		var l Look
		var was api.Snapshot
		if json.Unmarshal(now, &l.Now) != nil || json.Unmarshal(events, &l.Events) != nil && len(events) > 0 {
			return
		}
		if json.Unmarshal(before, &was) == nil {
			l.Before = &was
		}
		var subjects []Subject
		for _, of := range l.Now.Shares {
			subjects = append(subjects, Subject{Kind: Share, Name: of.Name})
			for _, p := range of.Processes {
				subjects = append(subjects, Subject{Kind: Process, Name: fmt.Sprint(p.PID), PID: p.PID, Share: of.Name})
			}
		}
		for _, c := range l.Now.Cards {
			subjects = append(subjects, Subject{Kind: Card, Name: c.UUID, Card: c.UUID})
		}
		for _, subject := range append(subjects, Subject{Kind: Share, Name: "?"}) {
			report := Explain(l, subject)
			if len(report.Causes) == 0 {
				t.Fatalf("%+v has no cause", subject)
			}
			for _, c := range report.Causes {
				if !slices.Contains(Names(), c.Cause) || c.Evidence == "" || c.Command == "" {
					t.Fatalf("%+v", c)
				}
			}
			if _, err := json.Marshal(report); err != nil {
				t.Fatal(err)
			}
		}
	})
}
