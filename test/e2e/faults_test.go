// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// worker is a burn program in a share, whose end is awaited.
type worker struct {
	pid    int
	ended  chan struct{}
	code   int
	output struct { // written by its goroutine, read after its end
		stdout string
		stderr bytes.Buffer
	}
}

// worker starts a burn program and lets it begin.
func (h *host) worker(t testing.TB, env []string, arguments ...string) *worker {
	t.Helper()
	command := exec.CommandContext(context.Background(), filepath.Join(h.ToolsDirectory, "burn"), arguments...)
	w := &worker{ended: make(chan struct{})}
	command.Env, command.Stderr, command.Stdin = env, &w.output.stderr, strings.NewReader("\n")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	w.pid = command.Process.Pid
	lines := bufio.NewReader(out)
	ready, err := lines.ReadString('\n')
	go func() {
		defer close(w.ended)
		rest, _ := io.ReadAll(lines)
		_ = command.Wait()
		w.code, w.output.stdout = command.ProcessState.ExitCode(), string(rest)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-w.ended
	})
	if err != nil || !strings.HasPrefix(ready, "ready ") {
		t.Fatalf("burn says %q (%v)", ready, err)
	}
	return w
}

// end waits for the end of a worker.
func (w *worker) end(t testing.TB, what string) {
	t.Helper()
	eventually(t, what+" ends", func() error {
		select {
		case <-w.ended:
			return nil
		default:
			return errors.New("it goes on")
		}
	})
}

// well checks that a worker came to its end with all its kernels.
func (w *worker) well(t testing.TB, what string) (kernels uint64) {
	t.Helper()
	w.end(t, what)
	var report struct{ Kernels uint64 }
	if err := json.Unmarshal([]byte(w.output.stdout), &report); w.code != 0 || err != nil || report.Kernels == 0 {
		t.Errorf("%s: exit code %d, %q, %s (%v)", what, w.code, w.output.stdout, w.output.stderr.String(), err)
	}
	return report.Kernels
}

// hit checks that a worker failed with a CUresult.
func (w *worker) hit(t testing.TB, what string, result uint32) {
	t.Helper()
	w.end(t, what)
	if !strings.Contains(w.output.stderr.String(), fmt.Sprintf("error %d\n", result)) || w.code != 1 {
		t.Errorf("%s: exit code %d, %q; want error %d", what, w.code, w.output.stderr.String(), result)
	}
}

// shareOn makes a share on one card.
func (h *host) shareOn(t testing.TB, name, uuid string) api.Share {
	t.Helper()
	share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: 2 << 30, GPU: uuid})
	if err != nil {
		t.Fatalf("create share %s: %v", name, err)
	}
	t.Cleanup(func() { _ = h.client.DeleteShare(context.Background(), name, true) })
	return share
}

// hour is a kernel that a program would wait for longer than any test.
const hour = "3600000000"

// TestFaultMatrix: each fault while four shares run, one of them on another card.
// The victim sees the documented error at once, in the midst of a kernel of an
// hour; who is not hit comes to its end with right data; the card is as
// documented; and after a reset there is work on it again.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	type row struct {
		fault condition.Fault
		scope condition.Scope
		error uint32
	}
	var matrix []row
	for _, x := range condition.Xids() {
		matrix = append(matrix, row{condition.Fault{Kind: condition.XID, XID: x.Number}, x.Scope, x.Error})
	}
	matrix = append(matrix,
		row{condition.Fault{Kind: condition.ECCSingle, Count: 2}, condition.Nobody, 0},
		row{condition.Fault{Kind: condition.ECCDouble}, condition.Victim, 214},
		row{condition.Fault{Kind: condition.Thermal}, condition.Nobody, 0},
		row{condition.Fault{Kind: condition.Power}, condition.Nobody, 0},
		row{condition.Fault{Kind: condition.CardLost}, condition.OnCard, 46},
	)
	h := newHost(t, hostOptions{cards: "2xA100-40GB"})
	truth := h.truth(t)
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, second := cards[0].UUID, cards[1].UUID
	victims, near, data, far := h.shareOn(t, "victims", first), h.shareOn(t, "near", first), h.shareOn(t, "data", first), h.shareOn(t, "far", second)
	for _, m := range matrix {
		name := m.fault.Kind.String()
		if m.fault.XID != 0 {
			name = fmt.Sprint("xid-", m.fault.XID)
		}
		ok := t.Run(name, func(t *testing.T) {
			holder := h.holder(t, data)
			do(t, holder, "start")
			address := alloc(t, holder, 16*mib)
			do(t, holder, "write %d %d", address, 16*mib)
			kernels := hour
			if m.scope == condition.Nobody {
				kernels = "1000"
			}
			victim := h.worker(t, h.Environ(victims.Socket), "--us", kernels, "--seconds", "0.5", "--pattern", "sync")
			neighbour := h.worker(t, h.Environ(near.Socket), "--us", "1000", "--seconds", "0.5")
			away := h.worker(t, h.Environ(far.Socket), "--us", "1000", "--seconds", "0.5")
			eventually(t, "all have begun", func() error {
				busy := 0
				states, err := truth.CardTime(t.Context())
				for _, s := range states {
					if (s.PID == victim.pid || s.PID == neighbour.pid || s.PID == away.pid) && s.BusyNS > 0 {
						busy++
					}
				}
				if busy < 3 {
					return fmt.Errorf("%d of 3 have, %v", busy, err)
				}
				return nil
			}, h.simulator)
			injection := simgpu.Injection{Fault: m.fault, PID: victim.pid}
			if m.scope != condition.Victim {
				injection.PID = 0
			}
			_, hit, err := truth.Inject(t.Context(), injection)
			if err != nil {
				t.Fatal(err)
			}
			switch m.scope {
			case condition.Nobody:
				victim.well(t, "the first")
				neighbour.well(t, "the neighbour")
				do(t, holder, "check %d %d", address, 16*mib)
			case condition.Victim:
				victim.hit(t, "the victim", m.error)
				neighbour.well(t, "the neighbour")
				do(t, holder, "check %d %d", address, 16*mib)
			case condition.OnCard:
				victim.hit(t, "the victim", m.error)
				neighbour.hit(t, "the neighbour", m.error)
				refused(t, holder, int(m.error), "check %d %d", address, 16*mib)
			}
			if want := map[condition.Scope]int{condition.Nobody: 0, condition.Victim: 1, condition.OnCard: 3}[m.scope]; hit != want {
				t.Errorf("%d processes were hit, not %d", hit, want)
			}
			away.well(t, "the one on the other card")
			holder.Kill()
			h.toldOf(t, first, m.fault)
			h.stateAfter(t, truth, m.fault)
			if _, err := truth.ClearFaults(t.Context(), -1); err != nil {
				t.Fatal(err)
			}
			again := h.worker(t, h.Environ(victims.Socket), "--us", "1000", "--seconds", "0.05")
			again.well(t, "after a reset")
			for _, name := range []string{"victims", "near", "data", "far"} {
				eventually(t, "share "+name+" is empty", func() error {
					if used := h.look(t, name).UsedBytes; used != 0 {
						return fmt.Errorf("%d bytes are in use", used)
					}
					return nil
				}, h.agent)
			}
		})
		if !ok {
			return
		}
	}
}

// stateAfter checks what a fault leaves behind on the first card, and that the
// second is well.
func (h *host) stateAfter(t testing.TB, truth *simgpu.Truth, f condition.Fault) {
	t.Helper()
	r, err := truth.Condition(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := truth.Condition(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if other.Lost || other.NeedsReset || other.SlowPercent != 100 || other.UncorrectedAggregate != 0 {
		t.Errorf("the other card is %+v", other)
	}
	xid := f.XID
	wrong := false
	switch {
	case f.Kind == condition.CardLost || xid == 79:
		wrong = !r.Lost
	case xid == 62 || xid == 95 || xid == 119 || xid == 120:
		wrong = !r.NeedsReset
	case xid == 48 || xid == 94:
		wrong = r.UncorrectedVolatile != 1
	case xid == 63:
		wrong = !r.RemapPending
	case xid == 64:
		wrong = !r.RemapFailed
	case xid == 92:
		wrong = r.CorrectedVolatile != 1
	case f.Kind == condition.ECCSingle:
		wrong = r.CorrectedVolatile != 2
	case f.Kind == condition.ECCDouble:
		wrong = r.UncorrectedVolatile != 1 || !r.RemapPending
	case f.Kind == condition.Thermal:
		wrong = r.SlowPercent != 200 || r.Reasons&condition.ReasonHWThermal == 0 || r.Celsius <= condition.SlowdownCelsius
	case f.Kind == condition.Power:
		wrong = r.SlowPercent != 150 || r.Reasons&condition.ReasonPowerBrake == 0
	}
	if wrong {
		t.Errorf("after %+v the card is %+v", f, r)
	}
	if r.Lost || r.NeedsReset {
		h.noContext(t)
	}
}

// toldOf checks that the agent has told of a fault: of its XID, and of a card
// that cannot be used.
func (h *host) toldOf(t testing.TB, card string, f condition.Fault) {
	t.Helper()
	xid := f.XID
	switch f.Kind {
	case condition.CardLost:
		xid = 79
	case condition.ECCDouble:
		xid = 94
	}
	if xid != 0 {
		eventually(t, "the agent has told of the XID", func() error {
			for _, e := range h.events(t, "card-fault", "") {
				if e.CardUUID == card && strings.Contains(e.Message, fmt.Sprintf(": XID %d", xid)) {
					return nil
				}
			}
			return errors.New("it has not")
		}, h.agent)
	}
	want := "ok"
	switch {
	case xid == 79:
		want = "lost"
	case xid == 62 || xid == 95 || xid == 119 || xid == 120:
		want = "needs-reset"
	case xid == 48 || xid == 63 || xid == 64 || xid == 94 || f.Kind == condition.Thermal || f.Kind == condition.Power:
		want = "degraded"
	}
	list, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := list.Cards[0]; c.UUID != card || c.Health != want || (c.HealthDetail == "") != (want == "ok") {
		t.Errorf("after %+v the first card is %q: %s; want %q", f, c.Health, c.HealthDetail, want)
	}
	if c := list.Cards[1]; c.Health != "ok" {
		t.Errorf("after %+v the second card is %q: %s", f, c.Health, c.HealthDetail)
	}
	if want == "lost" || want == "needs-reset" {
		h.event(t, "share-unusable", "near")
	}
}

// noContext checks that nobody gets a context on the first card.
func (h *host) noContext(t testing.TB) {
	t.Helper()
	holder := h.holderIn(t, h.Unheld())
	refused(t, holder, 46, "start")
	holder.Kill()
}

// A kernel takes twice as long on a hot card, and as long as it should when that
// is over.
func TestHotCardIsSlow(t *testing.T) {
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	each := func() float64 {
		t.Helper()
		w := h.worker(t, h.Unheld(), "--us", "1000", "--seconds", "0.2", "--pattern", "sync")
		kernels := w.well(t, "burn")
		for pid, s := range h.cardTimes(t, truth) {
			if pid == w.pid && s.Dead && s.Kernels == kernels {
				return float64(s.BusyNS) / float64(s.Kernels)
			}
		}
		t.Fatalf("the simulator knows no process %d with %d kernels", w.pid, kernels)
		return 0
	}
	if got := each(); got != 1e6 {
		t.Errorf("a kernel of 1 ms takes %.0f ns", got)
	}
	if _, _, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.Thermal}}); err != nil {
		t.Fatal(err)
	}
	if got := each(); got != 2e6 {
		t.Errorf("on a hot card a kernel of 1 ms takes %.0f ns", got)
	}
	if _, err := truth.ClearFaults(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := each(); got != 1e6 {
		t.Errorf("afterwards a kernel of 1 ms takes %.0f ns", got)
	}
}

// A sticky error is answered to every call in the context, under the front as
// without it.
func TestStickyErrorEndsTheContext(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	share := h.share(t, "sticky", 2<<30)
	for name, env := range map[string][]string{"bare": h.Unheld(), "front": h.Environ(share.Socket)} {
		t.Run(name, func(t *testing.T) {
			holder := h.holderIn(t, env)
			do(t, holder, "start")
			address := alloc(t, holder, mib)
			if _, hit, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.XID, XID: 31}}); err != nil || hit != 1 {
				t.Fatalf("%d hit, %v", hit, err)
			}
			for range 3 {
				refused(t, holder, 700, "write %d %d", address, 4096)
				refused(t, holder, 700, "alloc %d", mib)
				refused(t, holder, 700, "free %d", address)
			}
			var call *bench.Refused
			if _, err := holder.Do("check %d %d", address, 4096); !errors.As(err, &call) || call.Result != 700 {
				t.Errorf("check: %v", err)
			}
		})
	}
}

// TestFaultUnderQuota: a share with a part of the card's time whose program is hit
// in the midst of a kernel gives the card back: who else has a part comes to it, and
// the share's next program has its own.
func TestFaultUnderQuota(t *testing.T) {
	h := newHost(t, hostOptions{})
	truth := h.truth(t)
	var shares []api.Share
	for name, percent := range map[string]int{"hit": 30, "spared": 40} {
		share, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: 2 << 30, CoresPercent: percent, Policy: terms.Fixed})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.client.DeleteShare(context.Background(), name, true) })
		shares = append(shares, share)
	}
	for _, pattern := range []string{"sync", "async", "graph", "streams"} {
		t.Run(pattern, func(t *testing.T) {
			hit, spared := shares[0], shares[1]
			if hit.Name != "hit" {
				hit, spared = spared, hit
			}
			victim := h.worker(t, h.Environ(hit.Socket), "--us", hour, "--pattern", pattern)
			neighbour := h.worker(t, h.Environ(spared.Socket), "--us", "1000", "--seconds", "1")
			eventually(t, "the victim has begun", func() error {
				if busy := h.cardTimes(t, truth)[victim.pid].BusyNS; busy == 0 {
					return errors.New("it has had nothing")
				}
				return nil
			}, h.simulator)
			if _, n, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.XID, XID: 31}, PID: victim.pid}); err != nil || n != 1 {
				t.Fatalf("%d hit, %v", n, err)
			}
			victim.hit(t, "the victim", 700)
			if kernels := neighbour.well(t, "the neighbour"); kernels < 50 {
				t.Errorf("the neighbour ran %d kernels of 1 ms in a second", kernels)
			}
			again := h.worker(t, h.Environ(hit.Socket), "--us", "1000", "--seconds", "0.3")
			again.well(t, "the share's next program")
		})
	}
}
