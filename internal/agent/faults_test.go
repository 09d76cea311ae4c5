// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Of each fault the driver tells, or the kernel's log, or both in any order: it counts once.
func TestHeardFaults(t *testing.T) {
	begun := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		told string // d and l: the driver and the log, of one XID; D and L of another; ".": as long as both may take
		want int
	}{
		{"the driver alone", "dd", 2},
		{"the log alone", "ll", 2},
		{"both", "dl", 1},
		{"the log first", "ld", 1},
		{"twice", "ldld", 2},
		{"twice, the log first", "lldd", 2},
		{"others", "dL", 2},
		{"mixed", "dLlD", 2},
		{"one more of the log", "lld", 2},
		{"too late for one", "l.d", 2},
	} {
		var heard heardFaults
		counted, now := 0, begun
		for _, r := range c.told {
			if r == '.' {
				now = now.Add(echoFor + time.Millisecond)
				continue
			}
			if !heard.again(heardFault{testUUID, uint64(strings.ToLower(string(r))[0] - byte(r)), strings.ContainsRune("lL", r), now}) {
				counted++
			}
		}
		if counted != c.want {
			t.Errorf("%s: %d are counted, want %d", c.name, counted, c.want)
		}
	}
	var flooded heardFaults
	for range 2 * mostHeard {
		flooded.again(heardFault{testUUID, 31, true, begun})
	}
	if len(flooded) != mostHeard {
		t.Errorf("%d are kept, more than %d", len(flooded), mostHeard)
	}
}

// What the kernel's log says of a GPU is counted, with whose program it is of, unless the driver tells it, too.
// Lines of programs, of other GPUs and of simulated ones say nothing.
func TestKernelLog(t *testing.T) {
	r := newRig(t)
	must(t, r.stop())
	r.source.more = []gpu.Card{{UUID: secondUUID, Name: "L4", PCIAddress: "0000:65:00.0", MemoryBytes: 24 * gib}}
	r.source.others = map[string]map[int]uint64{}
	r.cfg.KernelLog = filepath.Join(t.TempDir(), "kmsg")
	must(t, unix.Mkfifo(r.cfg.KernelLog, 0o600))
	log, err := os.OpenFile(r.cfg.KernelLog, os.O_RDWR, 0)
	must(t, err)
	defer log.Close()
	r.start()
	share := r.share(api.ShareSpec{Name: "s", GPU: secondUUID, MemoryBytes: gib})
	f, err := newFront(share.Socket)
	must(t, err)
	defer f.close()
	eventually(t, "the log is read", func() bool { return r.daemon.driverWatch.logged.Load() })
	write := func(priority int, pci string, xid int, rest string) {
		t.Helper()
		_, err := fmt.Fprintf(log, "%d,1,1,-;NVRM: Xid (PCI:%s): %d, %s\n", priority, pci, xid, rest)
		must(t, err)
	}
	write(12, "0000:65:00", 79, "a program wrote this")
	write(4, "0000:01:00", 79, "the one that is simulated has this address")
	write(4, "0000:99:00", 79, "nobody's")
	write(4, "0000:65:00", 31, fmt.Sprintf("pid=%d, name=x, MMU Fault", os.Getpid()))
	write(4, "0000:65:00", 48, fmt.Sprintf("pid=%d, name=x, double bit", os.Getpid()))
	var told []api.Event
	awaitFault := func(xid uint64) {
		t.Helper()
		eventually(t, fmt.Sprintf("XID %d is told", xid), func() bool {
			list, err := r.client.Events(t.Context(), 0)
			must(t, err)
			told = told[:0]
			for _, e := range list.Events {
				if e.Kind == event.CardFault {
					told = append(told, e)
				}
			}
			return len(told) > 0 && told[len(told)-1].XID == xid
		})
	}
	awaitFault(48)
	for _, xid := range []uint64{48, 94} {
		r.source.faults <- fakeFault{gpu.Fault{UUID: secondUUID, XID: xid}, gpu.Health{State: gpu.Well}}
	}
	awaitFault(94)
	if len(told) != 3 {
		t.Fatalf("%d faults are told, want 3: %+v", len(told), told)
	}
	of := fmt.Sprintf("process %d", os.Getpid())
	if e := told[0]; e.XID != 31 || e.PID != os.Getpid() || e.Share != "s" || e.CardUUID != secondUUID || !strings.Contains(e.Message, of) {
		t.Errorf("of a program: %+v", e)
	}
	if e := told[1]; e.XID != 48 || e.PID != 0 || e.Share != "" || !strings.Contains(e.Message, of) {
		t.Errorf("of the GPU, though a program met it: %+v", e)
	}
}
