// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	proc "github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/race"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// What holds for an honest share of a fixed 30 % while others attack.
const (
	honestCores   = 30
	honestLeast   = 28.0
	honestBytes   = 2048 * mib
	keptBytes     = 1024 * mib
	churnedBytes  = 512 * mib
	patternBytes  = mib
	longestCall   = 250 * time.Millisecond
	agentMost     = 150 * mib
	longestTurn   = 5 * time.Millisecond
	siegeStandard = 20 // seconds
)

// honest is a share whose programs do no more than they may: one keeps memory, one
// allocates and frees, one launches as much as it gets, and others come and go.
type honest struct {
	share            api.Share
	keeper, churner  *bench.Holder
	kept             uint64 // address
	burner           *siegeBurner
	first, last      simgpu.TimeState
	attach, question time.Duration // the longest
	bare             time.Duration // what attach is of a program without Divvy, meanwhile
}

// siegeBurner keeps a GPU busy until it is told to end, and reports.
type siegeBurner struct {
	pid    int
	output *bufio.Reader
	begin  io.Closer
	wait   func() error
}

func (c *crowd) siegeBurner(t testing.TB, uid int, env []string, span time.Duration) *siegeBurner {
	t.Helper()
	command := c.as(uid, filepath.Join(c.ToolsDirectory, "burn"), "--us", "1000", "--ahead-ms", "500",
		"--seconds", fmt.Sprint(span.Seconds()))
	command.Env, command.Stderr = env, os.Stderr
	begin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	b := &siegeBurner{pid: command.Process.Pid, output: bufio.NewReader(output), begin: begin, wait: func() error { ended = true; return command.Wait() }}
	t.Cleanup(func() {
		if !ended {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	if line, err := b.output.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("burn says %q (%v)", line, err)
	}
	return b
}

// report waits for its end.
func (b *siegeBurner) report(t testing.TB) (longestLaunch time.Duration) {
	t.Helper()
	var said struct {
		LongestLaunchNs int64 `json:"longestLaunchNs"`
	}
	line, err := b.output.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &said)
	}
	if err != nil {
		t.Errorf("burn says %q: %v", line, err)
	}
	if err := b.wait(); err != nil {
		t.Errorf("burn: %v", err)
	}
	return time.Duration(said.LongestLaunchNs)
}

func (c *crowd) honest(t testing.TB, name string, span time.Duration) *honest {
	t.Helper()
	uid := honestUser
	share, err := c.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: honestBytes, Policy: terms.Fixed, CoresPercent: honestCores, JoinUID: &uid})
	if err != nil {
		t.Fatal(err)
	}
	h := &honest{share: share, keeper: c.holderAs(t, uid, share.Socket), churner: c.holderAs(t, uid, share.Socket)}
	do(t, h.keeper, "start")
	h.kept = alloc(t, h.keeper, keptBytes)
	do(t, h.keeper, "write %d %d", h.kept, patternBytes)
	do(t, h.churner, "start")
	do(t, h.churner, "churn %d 5", churnedBytes)
	h.burner = c.siegeBurner(t, uid, c.Environ(share.Socket), span)
	return h
}

// look compares what the simulator says with what must be so.
func (h *honest) look(t testing.TB, truth *simgpu.Truth, times map[int]simgpu.TimeState) {
	t.Helper()
	held, err := truth.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := uint64(0)
	for _, p := range held {
		switch p.PID {
		case h.keeper.PID:
			if p.Bytes != contextBytes+keptBytes {
				t.Errorf("%s: the simulator says that %d bytes are kept of %d", h.share.Name, p.Bytes, contextBytes+keptBytes)
			}
			all += p.Bytes
		case h.churner.PID, h.burner.pid:
			all += p.Bytes
		}
	}
	if all > honestBytes || all < 3*contextBytes+keptBytes {
		t.Errorf("%s: the simulator says that %d bytes are in use", h.share.Name, all)
	}
	now, ok := times[h.burner.pid]
	if ok && h.first.AtNS == 0 && now.BusyNS > 0 {
		h.first = now
	}
	if ok && now.Queued > 0 {
		h.last = now
	}
}

// visit does what other programs of the share do: one comes, and what is kept is read. A program
// without Divvy comes, too.
func (h *honest) visit(t testing.TB, c *crowd) {
	t.Helper()
	for _, by := range []struct {
		socket  string
		longest *time.Duration
	}{{h.share.Socket, &h.attach}, {"", &h.bare}} {
		guest := c.holderAs(t, honestUser, by.socket)
		begun := time.Now()
		do(t, guest, "start")
		*by.longest = max(*by.longest, time.Since(begun))
		guest.Kill()
	}
	do(t, h.keeper, "check %d %d", h.kept, patternBytes)
	begun := time.Now()
	c.look(t, h.share.Name)
	h.question = max(h.question, time.Since(begun))
}

// Two honest shares of a fixed 30 % beside six attackers, two users, who do at random
// what they can: storms of connections and of shares, made-up claims, all places,
// floods of events, names of memory, rubbish, lies on their pages, memory past the library, jobs that
// are stopped and killed, priorities, and programs that use all they get. The honest
// keep their memory to the byte, and no call of theirs fails. The control are the same
// programs without Divvy: neither memory nor time is theirs. In soak (make soak) this
// takes ten minutes, and what depends on the host's own speed is looked at, too: the
// parts of the GPU, the longest call, and the agent's memory and turns.
func TestSiege(t *testing.T) {
	soak := os.Getenv("DIVVY_SIEGE_SECONDS") != ""
	span := time.Duration(fromEnvironment(t, "DIVVY_SIEGE_SECONDS", siegeStandard)) * time.Second
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %v", seed, span)
	c := newCrowd(t, hostOptions{})
	truth := c.truth(t)
	t.Run("control", func(t *testing.T) { c.withoutDivvy(t, truth) })
	if err := truth.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := []*honest{c.honest(t, "honest-one", span), c.honest(t, "honest-two", span)}
	first, err := c.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"storm", "connects", "claims", "places", "lies", "past", "events", "handed", "churn", "jobs", "rubbish", "burn", "priority"}
	var attacks []*attack
	for i := range uint64(6) {
		attacks = append(attacks, c.attack(t, []int{attackerOne, attackerTwo}[i%2], seed+i, all[i%2].share.Socket, kinds...))
	}
	for _, h := range all {
		h.burner.begin.Close()
	}
	table, resident := proc.New("/proc"), uint64(0)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for round, end := 0, time.Now().Add(span); time.Now().Before(end) && !t.Failed(); round++ {
		<-tick.C
		times := c.cardTimes(t, truth)
		for i, h := range all {
			h.look(t, truth, times)
			if round%20 == 10*i {
				h.visit(t, c)
			}
		}
		now, err := table.Resident(first.PID)
		if err != nil {
			t.Fatalf("the agent: %v", err)
		}
		resident = max(resident, now)
	}
	launches := make([]time.Duration, len(all))
	for i, h := range all {
		launches[i] = h.burner.report(t)
	}
	done := map[string]int{}
	for _, a := range attacks {
		for kind, times := range a.end(t) {
			done[kind] += times
		}
	}
	t.Logf("the attackers did %v", done)
	for _, kind := range append(kinds, "connections") {
		if done[kind] == 0 {
			t.Errorf("%s was not tried: %v", kind, done)
		}
	}
	for i, h := range all {
		churned, err := h.churner.Numbers("") // ends it
		if err != nil {
			t.Fatal(err)
		}
		part := 100 * float64(h.last.BusyNS-h.first.BusyNS) / float64(h.last.AtNS-h.first.AtNS)
		calls, failed, denied, longest := churned[0], churned[1], churned[2], time.Duration(churned[3])
		t.Logf("%s: %.2f %% of the GPU; %d calls, the longest %v; a launch %v at most, an attach %v (%v without Divvy), a question %v",
			h.share.Name, part, calls, longest, launches[i], h.attach, h.bare, h.question)
		if calls == 0 || failed != 0 || denied != 0 {
			t.Errorf("%s: %d calls, of which %d failed and %d were denied", h.share.Name, calls, failed, denied)
		}
		if soak && part < honestLeast {
			t.Errorf("%s had %.2f %% of the GPU", h.share.Name, part)
		}
		if most := max(longest, launches[i], h.attach, h.question); soak && most > longestCall {
			t.Errorf("%s: a call took %v", h.share.Name, most)
		}
		do(t, h.churner, "exit")
		h.exact(t)
	}
	last, err := c.client.Version(t.Context())
	if err != nil || last.PID != first.PID {
		t.Errorf("the agent is process %d, was %d: %v", last.PID, first.PID, err)
	}
	if devices, err := c.client.Devices(t.Context()); err == nil && devices.Cards[0].Time != nil {
		t.Logf("what became of the GPU's time: %+v", *devices.Cards[0].Time)
	}
	c.agent.stop(t)
	turns, p99 := c.turns(t)
	t.Logf("agent: %d MiB resident, %d turns, 99 of 100 within %v", resident/mib, turns, p99)
	if resident > agentMost && !race.Enabled {
		t.Errorf("the agent had %d MiB", resident/mib)
	}
	if soak && p99 > longestTurn {
		t.Errorf("99 of 100 turns of the agent's loop took up to %v", p99)
	}
}

// exact says that all of a share's memory is there for its keeper, once its other
// programs have ended, and not a byte more.
func (h *honest) exact(t testing.TB) {
	t.Helper()
	var free, total uint64
	eventually(t, "what the others had is back", func() error {
		if free, total = room(t, h.keeper); free != honestBytes-contextBytes-keptBytes {
			return fmt.Errorf("%d of %d bytes are free", free, total)
		}
		return nil
	})
	alloc(t, h.keeper, free)
	refused(t, h.keeper, outOfMemory, "alloc 512")
	do(t, h.keeper, "check %d %d", h.kept, patternBytes)
	h.keeper.Kill()
}

// withoutDivvy runs what the siege is about on the bare driver: two who would have 30 %
// each, and six who take what they get.
func (c *crowd) withoutDivvy(t *testing.T, truth *simgpu.Truth) {
	keeper := c.holderAs(t, honestUser, "")
	do(t, keeper, "start")
	greedy := c.holderAs(t, attackerOne, "")
	do(t, greedy, "start")
	var pids []int
	for i := range 8 {
		uid := []int{honestUser, honestUser, attackerOne, attackerTwo}[min(i, 2+i%2)]
		b := c.siegeBurner(t, uid, c.Unheld(), time.Minute)
		b.begin.Close()
		pids = append(pids, b.pid)
	}
	for piece := 8192 * mib; piece >= mib; piece /= 2 {
		for _, err := greedy.Number("alloc %d", piece); err == nil; _, err = greedy.Number("alloc %d", piece) {
		}
	}
	refused(t, keeper, outOfMemory, "alloc %d", keptBytes)
	eventually(t, "all launch", func() error {
		for times, i := c.cardTimes(t, truth), 0; i < len(pids); i++ {
			if times[pids[i]].BusyNS == 0 {
				return fmt.Errorf("process %d has had nothing", pids[i])
			}
		}
		return nil
	})
	for i, had := 0, c.busyOver(t, truth, time.Second); i < 2; i++ {
		if part := had[pids[i]]; part >= honestLeast {
			t.Errorf("without Divvy an honest program had %.2f %% of the GPU", part)
		}
	}
}

var turnsLine = regexp.MustCompile(`msg="agent ends" turns=(\d+) p99=(\S+)`)

// turns is how many turns the agent's loop had, and in what time most were done; the
// agent says so when it ends.
func (c *crowd) turns(t testing.TB) (turns uint64, p99 time.Duration) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(c.directory, "agent.log"))
	if err != nil {
		t.Fatal(err)
	}
	said := turnsLine.FindSubmatch(log)
	if said == nil {
		t.Fatal("the agent does not say how long its turns took")
	}
	if _, err := fmt.Sscan(string(said[1]), &turns); err != nil {
		t.Fatal(err)
	}
	if p99, err = time.ParseDuration(string(said[2])); err != nil {
		t.Fatal(err)
	}
	return turns, p99
}
