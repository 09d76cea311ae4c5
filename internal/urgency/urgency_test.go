// SPDX-License-Identifier: Apache-2.0

package urgency

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBudget walks a guard of 25 % through quiet and busy times.
func TestBudget(t *testing.T) {
	is := ordinary
	g := &Guard{most: time.Second / 4, apply: func(l level) { is = l }}
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		at, used time.Duration
		is       level
	}{
		{0, 3 * time.Second, urgent}, // what it used before does not count
		{100 * time.Millisecond, 3020 * time.Millisecond, urgent},
		{200 * time.Millisecond, 3180 * time.Millisecond, favoured}, // all of that time
		{900 * time.Millisecond, 3200 * time.Millisecond, favoured},
		{1000 * time.Millisecond, 3400 * time.Millisecond, favoured}, // 40 % of a second
		{1900 * time.Millisecond, 3400 * time.Millisecond, favoured},
		{2000 * time.Millisecond, 4000 * time.Millisecond, ordinary}, // 60 % of a second
		{3900 * time.Millisecond, 5900 * time.Millisecond, ordinary},
		{4000 * time.Millisecond, 6000 * time.Millisecond, urgent}, // it may try again
		{5000 * time.Millisecond, 6249 * time.Millisecond, urgent},
		{6000 * time.Millisecond, 6599 * time.Millisecond, favoured}, // 35 %
		{8100 * time.Millisecond, 7300 * time.Millisecond, favoured}, // 33 %: that time begins anew
		{10000 * time.Millisecond, 7400 * time.Millisecond, favoured},
		{10200 * time.Millisecond, 7410 * time.Millisecond, urgent}, // 2 s of little
		{10300 * time.Millisecond, 7440 * time.Millisecond, favoured},
		{11000 * time.Millisecond, 8100 * time.Millisecond, ordinary},
	} {
		g.look(moment{start.Add(step.at), step.used})
		if is != step.is {
			t.Fatalf("after %v: level %v, want %v", step.at, is, step.is)
		}
	}
}

func TestNilStaysAsItIs(t *testing.T) {
	var g *Guard
	g.Keep(time.Now())
	g.Rest()
}

// TestThreads runs this test in a process of its own and looks at its threads.
func TestThreads(t *testing.T) {
	if os.Getenv("URGENCY_CHILD") != "" {
		child(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestThreads$", "-test.v")
	cmd.Env = append(os.Environ(), "URGENCY_CHILD=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func child(t *testing.T) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Skipf("this kernel does not tell: %v", err)
	}
	runtime.GC() // so that there are several threads
	l := newLadder()
	g := &Guard{most: time.Second, apply: l.set}
	g.Keep(time.Now())
	if len(l.steps) == 0 {
		t.Skip("nothing is allowed here")
	}
	raised := func(a unix.SchedAttr) bool {
		return a.Policy == l.steps[0].Policy && a.Nice == l.steps[0].Nice && a.Runtime == l.steps[0].Runtime
	}
	for try := 0; !all(attributes(t), raised); try++ { // the runtime may start a thread at any time
		if try == 1000 {
			t.Fatalf("not as urgent as %+v: %+v", l.steps[0], attributes(t))
		}
		l.set(urgent)
	}
	if l.steps[0].Policy == unix.SCHED_FIFO {
		l.set(favoured)
		if len(l.steps) > 1 && !all(attributes(t), func(a unix.SchedAttr) bool { return a.Policy == unix.SCHED_NORMAL && a.Nice == l.steps[1].Nice }) {
			t.Errorf("not favoured as %+v: %+v", l.steps[1], attributes(t))
		}
	}
	out, err := exec.Command("cat", "/proc/self/stat").Output()
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	if nice := fields[18]; nice != strconv.Itoa(int(before.Nice)) || fields[40] != strconv.Itoa(int(before.Policy)) {
		t.Errorf("a child has nice %s and policy %s, want %d and %d", nice, fields[40], before.Nice, before.Policy)
	}
	g.Rest()
	if !all(attributes(t), func(a unix.SchedAttr) bool { return a.Policy == before.Policy && a.Nice == before.Nice }) {
		t.Errorf("not as before, %+v: %+v", *before, attributes(t))
	}
}

func all(list []unix.SchedAttr, is func(unix.SchedAttr) bool) bool {
	return !slices.ContainsFunc(list, func(a unix.SchedAttr) bool { return !is(a) })
}

// attributes are those of all threads.
func attributes(t *testing.T) []unix.SchedAttr {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var list []unix.SchedAttr
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		a, err := unix.SchedGetAttr(id, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, *a)
	}
	return list
}
