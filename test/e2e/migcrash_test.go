// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// through is an apply whose driver talks to the simulator through m.
func (d *divided) through(t *testing.T, m *middle, goal string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), divvy(t), d.applyArgs(goal)...)
	command.Env = append(d.Bare(), "DIVVY_SIMULATOR="+m.socket)
	return command
}

// moments lets an apply through and lists the moments at which another could die
// with different traces: both sides of each change of the card and of each change
// of the journal, the first request and the last answer (which the end of the
// journal follows). Between them a program only reads.
func (d *divided) moments(t *testing.T, m *middle, goal string) []moment {
	t.Helper()
	journal, written := unix.Stat_t{}, []int{}
	m.expect(nil, func(request int) {
		var now unix.Stat_t
		_ = unix.Stat(d.journal, &now) // not there yet: all zero
		if now.Ino != journal.Ino || now.Size != journal.Size {
			written = append(written, request)
		}
		journal = now
	})
	if got := finish(t, d.through(t, m, goal), d.through(t, m, goal).Env); got.code != 0 {
		t.Fatalf("undisturbed: code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	requests := m.asked()
	last := len(requests) - 1
	found := []moment{{0, false}, {last, true}}
	for _, n := range written {
		found = append(found, moment{n, false}, moment{max(n-1, 0), true})
	}
	changes := 0
	for n, h := range requests {
		if h.Type == simwire.MIGChange {
			changes++
			found = append(found, moment{n, false}, moment{n, true}, moment{n + 1, false})
		}
	}
	if changes < 9 || len(written) < 2 {
		t.Fatalf("%d changes of the card and %d of the journal: an apply makes more", changes, len(written))
	}
	slices.SortFunc(found, func(a, b moment) int { return 2*(a.request-b.request) + order(a.done) - order(b.done) })
	found = slices.Compact(found)
	t.Logf("%d requests, %d changes of the card, %d of the journal: %d moments", len(requests), changes, len(written), len(found))
	return found
}

func order(done bool) int {
	if done {
		return 1
	}
	return 0
}

// kill ends an apply by SIGKILL at a moment, which it must reach.
func (d *divided) kill(t *testing.T, m *middle, goal string, at moment) {
	t.Helper()
	reached := m.expect(&at, nil)
	command := d.through(t, m, goal)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case <-reached:
	case err := <-ended:
		t.Fatalf("it ended before %+v: %v", at, err)
	}
	_ = command.Process.Kill()
	<-ended
	if status, ok := command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("at %+v it ended as %v", at, command.ProcessState)
	}
}

// wants fails unless the card is divided in one of two ways; it says whether it
// is the second.
func (d *divided) wants(t *testing.T, what string, old, fresh string) (isNew bool) {
	t.Helper()
	now := d.layout(t)
	if now != old && now != fresh {
		t.Fatalf("%s: the card is %q, neither %q nor %q", what, now, old, fresh)
	}
	return now == fresh
}

// An apply that is killed at any moment leaves a card that the next one finds its
// way from: to what was, or to what was wanted. So does one that is killed while it
// does that.
func TestMIGKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, way := range []struct{ name, from, to string }{
		{"from a whole card", "", mix},
		{"from a mix", mix, seven},
	} {
		t.Run(way.name, func(t *testing.T) {
			d := newDivided(t, "H100-80GB")
			m := newMiddle(t, d.SimulatorSocket)
			from, to, nothing := d.goal(t, way.from), d.goal(t, way.to), d.nothing(t)
			d.apply(t, from, 0)
			old := d.layout(t)
			moments := d.moments(t, m, to)
			fresh := d.layout(t)
			between, ends := 0, map[bool]int{}
			d.apply(t, from, 0)
			for n, at := range moments {
				d.kill(t, m, to, at)
				if now := d.layout(t); now != old && now != fresh {
					between++
				}
				d.apply(t, nothing, 0)
				isNew := d.wants(t, fmt.Sprintf("killed at %+v, then recovered", at), old, fresh)
				ends[isNew]++
				if n%4 == 0 {
					d.apply(t, to, 0)
					isNew = d.wants(t, fmt.Sprintf("killed at %+v, recovered, then applied", at), fresh, fresh)
				}
				if isNew {
					d.apply(t, from, 0)
				}
			}
			if between < len(moments)/2 || ends[true] == 0 || ends[false] == 0 {
				t.Errorf("%d of %d kills left the card between, %v ended new: the moments are not those", between, len(moments), ends)
			}
			d.killTwice(t, m, from, to, moments[len(moments)/2], old, fresh)
		})
	}
}

// killTwice kills the apply that recovers from a kill, at each change it makes.
func (d *divided) killTwice(t *testing.T, m *middle, from, to string, first moment, old, fresh string) {
	t.Helper()
	nothing := d.nothing(t)
	d.apply(t, from, 0)
	d.kill(t, m, to, first)
	for _, second := range d.movesOf(t, m, nothing) {
		d.apply(t, from, 0)
		d.kill(t, m, to, first)
		d.kill(t, m, nothing, second)
		d.apply(t, nothing, 0)
		d.wants(t, fmt.Sprintf("killed at %+v, recovery killed at %+v", first, second), old, fresh)
	}
}

// movesOf lets an apply through and lists the moments after its changes of the card.
func (d *divided) movesOf(t *testing.T, m *middle, goal string) []moment {
	t.Helper()
	m.expect(nil, nil)
	if got := finish(t, d.through(t, m, goal), d.through(t, m, goal).Env); got.code != 0 {
		t.Fatalf("recovery: code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	var moves []moment
	for n, h := range m.asked() {
		if h.Type == simwire.MIGChange {
			moves = append(moves, moment{n, true})
		}
	}
	if len(moves) == 0 {
		t.Fatal("the recovery changed nothing")
	}
	return moves
}

// The driver goes away under an apply, as a machine that crashes: the next one
// finds an empty card, and makes it what it was.
func TestMIGDriverGone(t *testing.T) {
	t.Parallel()
	d := newDivided(t, "H100-80GB")
	m := newMiddle(t, d.SimulatorSocket)
	d.apply(t, d.goal(t, mix), 0)
	old := d.layout(t)
	moments := d.moments(t, m, d.goal(t, seven))
	fresh := d.layout(t)
	for _, at := range []moment{moments[len(moments)/3], moments[2*len(moments)/3]} {
		d.apply(t, d.goal(t, mix), 0)
		reached := m.expect(&at, nil)
		command := d.through(t, m, d.goal(t, seven))
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		<-reached
		d.simulator.kill()
		m.release()
		if err := command.Wait(); command.ProcessState.ExitCode() <= 0 {
			t.Errorf("without a driver: %v", err)
		}
		d.startSimulator(t)
		if now := d.layout(t); now != "mig false" {
			t.Fatalf("a new machine is %s", now)
		}
		d.apply(t, d.nothing(t), 0)
		d.wants(t, "after the driver came back", old, fresh)
	}
}

// Where the way back cannot be kept, nothing is changed.
func TestMIGNoRoomForTheJournal(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	d := newDivided(t, "H100-80GB")
	d.apply(t, d.goal(t, mix), 0)
	old := d.layout(t)
	full := filepath.Join(d.directory, "full")
	script := `set -eu
mkdir -p "$1"
mount -t tmpfs -o size=4k,nr_inodes=8 none "$1"
head -c 4096 /dev/zero > "$1/in-the-way" || true
shift
exec "$@"`
	args := []string{"--mount", "sh", "-c", script, "sh", full, divvy(t)}
	d.journal = filepath.Join(full, "partition.journal")
	got := run(t, d.Bare(), "unshare", append(args, d.applyArgs(d.goal(t, seven))...)...)
	if got.code == 0 || !strings.Contains(got.stderr, "no space left") {
		t.Errorf("code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	d.wants(t, "on a full disk", old, old)
}
