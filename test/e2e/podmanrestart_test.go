// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// restartUnder kills the agent and its supervisor under a program in a
// container, which keeps what it has and is held as before.
func (h *host) restartUnder(t *testing.T, p *podman, share api.Share, work *working, flags []string) {
	t.Helper()
	holder, err := bench.HolderOf(p.run(context.Background(), append(device("share="+share.Name), flags...), "/tools/holder"),
		p.command(t.Context()).Env)
	if err != nil {
		t.Fatal(err)
	}
	outside := holder.PID
	t.Cleanup(func() {
		holder.PID = outside // its greeting tells the number in its own namespace: 1
		holder.Kill()
	})
	if err := holder.Greeting(); err != nil {
		t.Fatal(err)
	}
	do(t, holder, "start")
	first := alloc(t, holder, 200*mib)
	do(t, holder, "write %d %d", first, 1<<20)

	work.begin(t)
	h.killAgent(t)
	do(t, holder, "check %d %d", first, 1<<20)
	do(t, holder, "free %d", alloc(t, holder, 100*mib)) // of the credit that it has
	work.goesOn(t)
	h.startAgent(t)
	eventually(t, "the program is back", func() error {
		if s := h.look(t, share.Name); s.Clients != 1 || s.UsedBytes != 200*mib+contextBytes {
			return fmt.Errorf("%d clients, %d bytes", s.Clients, s.UsedBytes)
		}
		return nil
	}, h.agent)
	work.ends(t)
	h.event(t, "client-returned", share.Name) // its place would be kept without it
	do(t, holder, "check %d %d", first, 1<<20)
	second := alloc(t, holder, 200*mib)
	refused(t, holder, outOfMemory, "alloc %d", 100*mib)
	do(t, holder, "free %d", second)
	do(t, holder, "free %d", first)
	do(t, holder, "exit")
	eventually(t, "its memory is free", func() error {
		if s := h.look(t, share.Name); s.Clients != 0 || s.UsedBytes != 0 {
			return fmt.Errorf("%d clients, %d bytes", s.Clients, s.UsedBytes)
		}
		return nil
	}, h.agent)
}

// working is two containers: on the first card a program that wants all of the time
// and has a share of it, on the second one whose results it checks itself.
type working struct {
	host        *host
	podman      *podman
	truth       *simgpu.Truth
	flags       []string
	busyPercent int // the share of the first
	compute     api.Share
	command     *exec.Cmd // of the second
	output      bytes.Buffer
}

// busyUnder starts the first.
func (h *host) busyUnder(t *testing.T, p *podman, busy, compute api.Share, flags []string) *working {
	t.Helper()
	w := &working{host: h, podman: p, truth: h.truth(t), flags: flags, busyPercent: busy.CoresPercent, compute: compute}
	burn := w.start(t, busy, io.Discard, "/tools/burn", "--us", "1000", "--ahead-ms", "500")
	t.Cleanup(func() { // the container goes with the others, when podman does
		_ = burn.Process.Kill()
		_ = burn.Wait()
	})
	w.await(t, 0)
	return w
}

// begin starts the second.
func (w *working) begin(t *testing.T) {
	t.Helper()
	w.command = w.start(t, w.compute, &w.output, "/examples/mlp", "--json", "--check", "--size", "40000")
	w.await(t, 1)
}

// start starts a container; one at a time, as they mount the same /etc.
func (w *working) start(t *testing.T, share api.Share, output io.Writer, program ...string) *exec.Cmd {
	t.Helper()
	flags := append(append(device("share="+share.Name), w.flags...), "--volume", built(t, "lib", "divvy", "examples")+":/examples:ro")
	command := w.podman.run(t.Context(), flags, program...)
	command.Env, command.Stdin, command.WaitDelay = w.podman.command(t.Context()).Env, strings.NewReader("\n"), 5*time.Second
	command.Stdout, command.Stderr = output, os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command
}

// await waits until something computes on a card.
func (w *working) await(t *testing.T, card int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the program on card %d computes", card), func() error {
		if s := w.on(t, card); s.Kernels < 100 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, w.host.simulator, w.host.agent)
}

// on is what the program that computes on a card has had of it.
func (w *working) on(t *testing.T, card int) simgpu.TimeState {
	t.Helper()
	states, err := w.truth.CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Card == card && s.Kernels > 0 && !s.Dead {
			return s
		}
	}
	return simgpu.TimeState{}
}

// goesOn checks that they compute without an agent, within their share.
func (w *working) goesOn(t *testing.T) {
	t.Helper()
	before := w.on(t, 1)
	w.isHeld(t, "while the agent was away")
	eventually(t, "the program computes while the agent is away", func() error {
		if now := w.on(t, 1); now.Kernels < before.Kernels+100 {
			return fmt.Errorf("%d kernels, then %d", before.Kernels, now.Kernels)
		}
		return nil
	}, w.host.simulator)
}

// isHeld checks that the one that wants all of a card's time has its share of it, perhaps
// after some time: it does not know at once that an agent has gone, and a busy host starves it.
func (w *working) isHeld(t *testing.T, when string) {
	t.Helper()
	const least = 10 // of 30, on a host that wakes it later than it may save up
	if whole := lookAgain(5, least, func() float64 {
		whole, most := parts(w.host.watch(t, w.truth, w.on(t, 0).PID, 1200*time.Millisecond))
		if most > float64(w.busyPercent)+3 {
			t.Errorf("%s the share of %d %% had %.1f %% of a second", when, w.busyPercent, most)
		}
		return whole
	}); whole < least {
		t.Errorf("%s the share of %d %% had %.1f %% of its card", when, w.busyPercent, whole)
	}
}

// ends checks that the one comes to its end, no sooner, with every result right,
// and that the other is held as before.
func (w *working) ends(t *testing.T) {
	t.Helper()
	if s := w.on(t, 1); s.Kernels == 0 {
		t.Error("it ended before its agent was back")
	}
	err := w.command.Wait()
	got := outcome{stdout: w.output.String(), code: w.command.ProcessState.ExitCode()}
	if _, wrong := readExample(got, "mlp"); err != nil || wrong != nil {
		t.Errorf("%v, %v", err, wrong)
	}
	w.isHeld(t, "under the next agent")
}
