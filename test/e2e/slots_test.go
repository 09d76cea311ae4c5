// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// overTwo is a host of two GPUs with a share over both: 1 GiB and 30 % of each.
func overTwo(t *testing.T, flags ...string) (h *host, share api.Share) {
	t.Helper()
	h = newHost(t, hostOptions{cards: "2xL4", agentFlags: flags})
	return h, h.shareOf(t, api.ShareSpec{Name: "two", GPUs: 2, MemoryBytes: 1 << 30, CoresPercent: 30})
}

// onEach does something on either GPU of a holder.
func onEach(t *testing.T, holder *bench.Holder, f func(gpu int)) {
	t.Helper()
	for gpu := range 2 {
		do(t, holder, "gpu %d", gpu)
		f(gpu)
	}
}

// Each GPU of a share has its own quota, for all its processes, across a restart of the
// agent and the death of a process. The control holds more of each without the share.
func TestMemoryOfTwoGPUs(t *testing.T) {
	t.Parallel()
	h, share := overTwo(t)
	truth := h.truth(t)
	control := h.holderIn(t, h.Unheld())
	onEach(t, control, func(int) { alloc(t, control, 3<<30) })
	control.Kill()
	h.empty(t)
	h.resetPeak(t)

	one, two := h.holder(t, share), h.holder(t, share)
	onEach(t, one, func(gpu int) {
		alloc(t, one, 600*mib)
		refused(t, one, outOfMemory, "alloc %d", 600*mib)
		if free, total := room(t, one); total != 1<<30 || free > (1<<30)-600*mib {
			t.Errorf("GPU %d: %d free of %d", gpu, free, total)
		}
	})
	onEach(t, two, func(int) { refused(t, two, outOfMemory, "alloc %d", 400*mib) })

	h.killAgent(t)
	h.startAgent(t)
	eventually(t, "both are back", func() error {
		if s := h.look(t, "two"); s.Clients != 2 || len(s.Cards) != 2 || s.Cards[0].UsedBytes < 600*mib || s.Cards[1].UsedBytes < 600*mib || s.State != "active" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, h.agent)
	onEach(t, two, func(int) {
		refused(t, two, outOfMemory, "alloc %d", 400*mib)
		alloc(t, two, 100*mib)
	})

	one.Kill()
	eventually(t, "the memory of the dead is back on both", func() error {
		if s := h.look(t, "two"); s.Clients != 1 || s.Cards[0].UsedBytes > 200*mib || s.Cards[1].UsedBytes > 200*mib {
			return fmt.Errorf("%+v", s)
		}
		return nil
	}, h.agent)
	onEach(t, two, func(int) { alloc(t, two, 700*mib) })
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, card := range cards {
		if card.PeakUsedBytes > 1<<30 {
			t.Errorf("card %d: %d bytes were held at once", card.Index, card.PeakUsedBytes)
		}
	}
}

// busyOfEach is what a process had of each of two cards for a span, in percent.
func (h *host) busyOfEach(t testing.TB, truth *simgpu.Truth, pid int, span time.Duration) (percent [2]float64) {
	t.Helper()
	var before [2]simgpu.TimeState
	eventually(t, "it has begun on both", func() error {
		for card := range before {
			if before[card] = h.cardTimesOf(t, truth, card)[pid]; before[card].BusyNS == 0 {
				return fmt.Errorf("nothing has run on GPU %d", card)
			}
		}
		return nil
	}, h.simulator)
	select {
	case <-time.After(span):
	case <-t.Context().Done():
		t.Fatal("the test was ended")
	}
	for card, b := range before {
		s := h.cardTimesOf(t, truth, card)[pid]
		percent[card] = 100 * float64(s.BusyNS-b.BusyNS) / float64(s.AtNS-b.AtNS)
	}
	return percent
}

// Each GPU gives the share its part of the time: one process that works on both has it of
// each, and so it has when the agent was away. The control without the share has more.
func TestTimeOfTwoGPUs(t *testing.T) {
	h, share := overTwo(t)
	truth := h.truth(t)
	arguments := []string{"--us", "1000", "--gpus", "2"}
	control := h.burner(t, arguments...)
	control.start()
	least := func(percent [2]float64) float64 { return min(percent[0], percent[1]) }
	if got := lookAgain(10, 60, func() float64 { return least(h.busyOfEach(t, truth, control.pid, time.Second)) }); got < 60 {
		t.Errorf("control: %.1f %% of a GPU", got)
	}
	control.kill()

	held := h.burnerIn(t, h.Environ(share.Socket), arguments...)
	held.start()
	measure := func(when string) {
		t.Helper()
		if got := lookAgain(10, 24, func() float64 {
			got := h.busyOfEach(t, truth, held.pid, 3*time.Second)
			if max(got[0], got[1]) > 32 {
				t.Errorf("%s: %.2f %% of the GPUs, and 30 were promised", when, got)
			}
			return least(got)
		}); got < 24 {
			t.Errorf("%s: %.2f %% of a GPU, and 30 were promised", when, got)
		}
	}
	measure("at first")
	h.killAgent(t)
	h.startAgent(t)
	measure("after a restart")
	s := h.look(t, "two")
	if s.Cards[0].CardTimeNs == 0 || s.Cards[1].CardTimeNs == 0 || s.CardTimeNs != s.Cards[0].CardTimeNs+s.Cards[1].CardTimeNs {
		t.Errorf("%+v", s.Cards)
	}
}

// One GPU falls off the bus: a program on the other goes on, and so does the share there.
func TestOneOfTwoGPUsIsLost(t *testing.T) {
	t.Parallel()
	h, share := overTwo(t)
	truth := h.truth(t)
	holder := h.holder(t, share)
	do(t, holder, "gpu 0")
	address := alloc(t, holder, 100*mib)
	do(t, holder, "write %d %d", address, mib)
	first := append(h.Environ(share.Socket), "CUDA_VISIBLE_DEVICES=0")
	worker := h.worker(t, first, "--us", "1000", "--seconds", "1")
	if _, _, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Kind: condition.XID, XID: 79, Card: 1}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the GPU is lost", func() error {
		if s := h.look(t, "two"); s.Cards[1].Health != "lost" || s.Cards[0].Health != "ok" {
			return fmt.Errorf("%+v", s.Cards)
		}
		return nil
	}, h.agent)
	if e := h.event(t, "share-unusable", "two"); e.CardUUID != share.Cards[1].CardUUID || !strings.Contains(e.Message, "GPU 1 of its 2") {
		t.Errorf("%+v", e)
	}
	worker.well(t, "a program on the other GPU")
	do(t, holder, "check %d %d", address, mib)
	refused(t, holder, outOfMemory, "alloc %d", 1<<30)
	alloc(t, holder, 100*mib)
	holder.Kill()
	eventually(t, "what it had of the other is back", func() error {
		if s := h.look(t, "two"); s.Cards[0].UsedBytes != 0 {
			return fmt.Errorf("%+v", s.Cards)
		}
		return nil
	}, h.agent)
	again := h.worker(t, first, "--us", "1000", "--seconds", "0.1")
	again.well(t, "a program that starts on the other GPU")
}

// The commands: what is made, shown and refused.
func TestRunOverSeveralGPUs(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "A100-40GB,2xL4"})
	program := built(t, "build", "test", "views")
	command := func(code int, words ...string) outcome {
		t.Helper()
		got := run(t, append(os.Environ(), "DIVVY_AGENT="+h.AgentSocket), divvy(t), words...)
		if got.code != code {
			t.Errorf("divvy %q: code %d, want %d\n%s%s", words, got.code, code, got.stdout, got.stderr)
		}
		if code != 0 && strings.Count(got.stderr, "divvy: error:") != 1 {
			t.Errorf("divvy %q: %s", words, got.stderr)
		}
		return got
	}
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := named(t, devices.Cards)
	got := viewsIn(t, command(0, "run", "--gpus", "2", "--mem", "1GiB", "--cores", "30", "--", program, "look"))
	got.check(t, "two of three", names[1:], names[1:]) // of one model
	all := command(0, "run", "--gpus", "3", "--mem", "1GiB", "--", program, "look")
	viewsIn(t, all).check(t, "all three", names, names)
	if !strings.Contains(all.stderr, "different models") {
		t.Errorf("stderr %q", all.stderr)
	}
	turned := []string{devices.Cards[2].UUID, devices.Cards[0].UUID}
	got = viewsIn(t, command(0, "run", "--gpu", strings.Join(turned, ","), "--mem", "1GiB", "--", program, "look"))
	got.check(t, "two by name", []string{names[2], names[0]}, []string{names[2], names[0]})

	command(3, "run", "--gpus", "4", "--", "true")
	command(3, "run", "--gpus", "99", "--", "true")
	command(2, "run", "--gpus", "0", "--", "true")
	command(2, "run", "--gpus", "-1", "--", "true")
	command(2, "run", "--gpus", "many", "--", "true")
	command(4, "run", "--gpus", "3", "--mem", "30GiB", "--", "true")
	command(2, "run", "--gpus", "3", "--gpu", strings.Join(turned, ","), "--", "true")
	command(2, "run", "--gpu", turned[0]+","+turned[0], "--", "true")
	created := command(0, "share", "create", "pair", "--gpus", "2", "--mem", "2GiB", "--cores", "20")
	if !strings.Contains(created.stdout, "2 x 2GiB") {
		t.Errorf("share create says %q", created.stdout)
	}
	command(2, "run", "--share", "pair", "--gpus", "2", "--", "true")
	viewsIn(t, command(0, "run", "--share", "pair", "--", program, "look")).check(t, "joined", names[1:], names[1:])
	list := command(0, "share", "list").stdout
	if !strings.Contains(list, "2 GPUs") || strings.Count(list, "\nGPU ") != 2 {
		t.Errorf("share list:\n%s", list)
	}
	command(0, "share", "set", "pair", "--mem", "3GiB", "--cores", "40")
	share := h.look(t, "pair")
	if uuids := share.CardUUIDs(); !slices.Equal(uuids, []string{devices.Cards[1].UUID, devices.Cards[2].UUID}) || share.Cards[1].LimitBytes != 3<<30 {
		t.Errorf("%+v", share)
	}
	now, err := h.client.Devices(t.Context())
	if err != nil || now.Cards[0].Shares != 0 || now.Cards[1].Shares != 1 || now.Cards[2].BookedBytes != 3<<30 || now.Cards[2].CoresBooked != 40 {
		t.Errorf("%+v (%v)", now.Cards, err)
	}
}

// A container gets all GPUs of the share, and no other.
func TestContainerOverTwoGPUs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	h := newHost(t, hostOptions{cards: "3xL4", agentFlags: []string{"--cdi-dir", folder}})
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.shareOf(t, api.ShareSpec{Name: "two", GPU: devices.Cards[1].UUID + "," + devices.Cards[2].UUID, MemoryBytes: 512 * mib})
	p := newPodman(t, folder)
	own := named(t, devices.Cards[1:])
	for list, want := range map[string][]string{"": own, "0": own[:1], "1": own[1:], "1,0": {own[1], own[0]}, "2": nil} {
		flags := append(device("share=two"), "--volume", built(t, "build", "test")+":/programs:ro")
		if list != "" {
			flags = append(flags, "--env", "CUDA_VISIBLE_DEVICES="+list)
		}
		command := p.run(t.Context(), flags, "/programs/views", "look")
		viewsIn(t, finish(t, command, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.work})).check(t, fmt.Sprintf("list %q", list), want, own)
	}
}
