// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
)

const noDevice, notReady = 100, 802 // CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_NOT_READY

// seen is what build/test/views prints: the GPUs, as UUID@ADDRESS, by three accounts.
type seen struct {
	init               int
	variable           string // CUDA_VISIBLE_DEVICES after cuInit
	cuda, driver, nvml []string
	numbers            string
}

// viewsIn reads what views printed.
func viewsIn(t testing.TB, got outcome) seen {
	t.Helper()
	s := seen{init: -1}
	for _, line := range strings.Split(got.stdout, "\n") {
		name, rest, _ := strings.Cut(line, " ")
		fields := strings.Fields(rest)
		list := func() []string {
			if len(fields) == 0 || fields[0] != strconv.Itoa(len(fields)-1) {
				t.Errorf("views: %q", line)
				return nil
			}
			return fields[1:]
		}
		switch name {
		case "init":
			s.init, _ = strconv.Atoi(rest)
		case "CUDA_VISIBLE_DEVICES":
			s.variable = rest
		case "cuda":
			s.cuda = list()
		case "driver":
			s.driver = list()
		case "nvml":
			s.nvml = list()
		case "numbers":
			s.numbers = rest
		}
	}
	if got.code != 0 || s.init < 0 {
		t.Errorf("views: code %d\n%s%s", got.code, tail(got.stdout, 1000), tail(got.stderr, 1000))
	}
	return s
}

// check wants just these GPUs, by every account: in NVML all of the share whatever the
// variable says. None wanted: cuInit says that there is none.
func (s seen) check(t testing.TB, what string, want, all []string) {
	t.Helper()
	if !slices.Equal(s.nvml, all) {
		t.Errorf("%s: NVML shows %v, want %v", what, s.nvml, all)
	}
	if len(want) == 0 {
		if s.init != noDevice {
			t.Errorf("%s: cuInit %d, want %d", what, s.init, noDevice)
		}
		return
	}
	if s.init != 0 || !slices.Equal(s.cuda, want) || !slices.Equal(s.driver, want) || s.numbers != "ok" {
		t.Errorf("%s: cuInit %d, the program sees %v, the driver shows %v, numbers %s; want %v", what, s.init, s.cuda, s.driver, s.numbers, want)
	}
}

// named are a host's GPUs as views prints them.
func named(t testing.TB, cards []api.Card) []string {
	t.Helper()
	var names []string
	for _, card := range cards {
		address := card.PCIAddress // DOMAIN:BUS:DEVICE.FUNCTION
		var domain, bus, slot int
		if _, err := fmt.Sscanf(address, "%x:%x:%x", &domain, &bus, &slot); err != nil {
			t.Fatalf("PCI address %q: %v", address, err)
		}
		names = append(names, fmt.Sprintf("%s@%04x:%02x:%02x", card.UUID, domain, bus, slot))
	}
	return names
}

// numbered is a host of three GPUs with a share on the second.
func numbered(t *testing.T, flags ...string) (h *host, cards []api.Card, share api.Share) {
	t.Helper()
	h = newHost(t, hostOptions{cards: "3xL4", agentFlags: flags})
	devices, err := h.client.Devices(t.Context())
	if err != nil || len(devices.Cards) != 3 {
		t.Fatalf("%+v (%v)", devices, err)
	}
	return h, devices.Cards, h.shareOf(t, api.ShareSpec{Name: "second", GPU: devices.Cards[1].UUID, MemoryBytes: 512 * mib})
}

// A program's list counts from the share's GPUs, in each form and however the program
// was started; the driver's own list is the program's, and NVML agrees.
func TestNumbersOfAShare(t *testing.T) {
	t.Parallel()
	h, cards, share := numbered(t)
	program := built(t, "build", "test", "views")
	names := named(t, cards)
	own := names[1:2]
	mine, other := cards[1].UUID, cards[0].UUID
	short := len("GPU-")
	for mine[:short] == other[:short] || mine[:short] == cards[2].UUID[:short] {
		short++
	}
	lists := []struct {
		list string
		sees bool
	}{
		{"0", true}, {"1", false}, {"0,1", true}, {"1,0", false}, {"0,0", false}, {" 0 ", true}, {"2", false}, {"00", true},
		{mine, true}, {mine[:short], true}, {strings.ToUpper(mine[:short]), true}, {"GPU-", true}, {other, false}, {other[:short], false},
		{mine + "," + other, true}, {other + "," + mine, false}, {mine + ",0", false}, {mine[:short] + "," + mine, false},
		{"", false}, {"-1", false}, {"0,-1", true}, {"-1,0", false}, {"none", false}, {"GPU-nonsense", false}, {"MIG-" + mine, false},
		{"MIG-" + mine + "/1/0", false},
	}
	run := func(t *testing.T, env []string, words ...string) seen {
		t.Helper()
		return viewsIn(t, run(t, env, program, words...))
	}
	under := []string{"run", "--agent", h.AgentSocket, "--share", share.Name, "--", program}
	ways := map[string]func(t *testing.T, list string) seen{
		"before loading": func(t *testing.T, list string) seen { return run(t, h.Environ(share.Socket), "set="+list, "look") },
		"after loading": func(t *testing.T, list string) seen {
			return run(t, h.Environ(share.Socket), "load", "set="+list, "look")
		},
		"environment": func(t *testing.T, list string) seen {
			return run(t, append(h.Environ(share.Socket), "CUDA_VISIBLE_DEVICES="+list), "look")
		},
		"preload alone": func(t *testing.T, list string) seen {
			return run(t, append(h.Bare(), "LD_PRELOAD="+filepath.Join(h.FrontDirectory, "libcuda.so.1"),
				"DIVVY_SOCKET="+share.Socket, "DIVVY_DRIVER_DIR="+h.DriverDirectory), "set="+list, "look")
		},
		"path alone": func(t *testing.T, list string) seen {
			return run(t, append(h.Bare(), "LD_LIBRARY_PATH="+h.FrontDirectory,
				"DIVVY_SOCKET="+share.Socket, "DIVVY_DRIVER_DIR="+h.DriverDirectory), "set="+list, "look")
		},
		"fork": func(t *testing.T, list string) seen {
			return run(t, h.Environ(share.Socket), "load", "fork", "set="+list, "look")
		},
		"exec": func(t *testing.T, list string) seen {
			return run(t, h.Environ(share.Socket), "look", "set="+list, "exec", "look")
		},
		"threads": func(t *testing.T, list string) seen {
			return run(t, h.Environ(share.Socket), "set="+list, "threads", "look")
		},
		"divvy run": func(t *testing.T, list string) seen {
			return viewsIn(t, finish(t, exec.CommandContext(t.Context(), divvy(t), append(under, "set="+list, "look")...), h.Bare()))
		},
		"isolate": func(t *testing.T, list string) seen {
			words := append([]string{"run", "--isolate"}, append(under[1:len(under):len(under)], "set="+list, "look")...)
			return viewsIn(t, finish(t, exec.CommandContext(t.Context(), divvy(t), words...), h.Bare()))
		},
		"env -i": func(t *testing.T, list string) seen {
			words := append(under[:len(under)-1:len(under)-1], "env", "-i", "DIVVY_SOCKET="+share.Socket, "DIVVY_DRIVER_DIR="+h.DriverDirectory,
				"DIVVY_SIMULATOR="+h.SimulatorSocket, "LD_LIBRARY_PATH="+h.FrontDirectory, program, "set="+list, "look")
			return viewsIn(t, finish(t, exec.CommandContext(t.Context(), divvy(t), words...), h.Bare()))
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for _, l := range lists {
				var want []string
				if l.sees {
					want = own
				}
				got := way(t, l.list)
				got.check(t, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q", l.list), want, own)
				if got.variable != l.list {
					t.Errorf("CUDA_VISIBLE_DEVICES was %q and is %q after cuInit", l.list, got.variable)
				}
			}
		})
	}
	t.Run("without the variable", func(t *testing.T) {
		for _, words := range [][]string{{"unset", "look"}, {"unset", "threads", "look"}, {"load", "unset", "fork", "look"}, {"unset", "exec", "look"}} {
			got := run(t, h.Environ(share.Socket), words...)
			got.check(t, fmt.Sprint(words), own, own)
			if got.variable != "unset" {
				t.Errorf("%v: CUDA_VISIBLE_DEVICES=%s after cuInit", words, got.variable)
			}
		}
	})
	t.Run("as divvy run sets it", func(t *testing.T) {
		for _, words := range [][]string{{"look"}, {"fork", "look"}, {"exec", "look"}} {
			got := viewsIn(t, finish(t, exec.CommandContext(t.Context(), divvy(t), append(under, words...)...), h.Bare()))
			got.check(t, fmt.Sprint(words), own, own)
			if got.variable != "0" {
				t.Errorf("divvy run sets CUDA_VISIBLE_DEVICES=%s", got.variable)
			}
		}
	})
	t.Run("control", func(t *testing.T) {
		got := run(t, h.Unheld(), "look")
		if !slices.Equal(got.driver, names) || !slices.Equal(got.cuda, names) {
			t.Errorf("without the front: %+v", got)
		}
		if got := run(t, h.Unheld(), "set=0", "look"); !slices.Equal(got.driver, names[:1]) {
			t.Errorf("without the front, 0 is %v", got.driver)
		}
	})
}

// A driver that was started before the front could tell it anything shows what it shows:
// the front refuses, rather than hide by itself what the driver's own list has.
func TestDriverStartedBefore(t *testing.T) {
	t.Parallel()
	h, cards, share := numbered(t)
	program := built(t, "build", "test", "views")
	got := run(t, h.Environ(share.Socket), program, "driver", "look")
	if s := viewsIn(t, got); s.init != notReady || !strings.Contains(got.stderr, "GPUs that are not the share's") {
		t.Errorf("cuInit %d\n%s", s.init, got.stderr)
	}
	h.event(t, event.CardsForeign, share.Name)
	// Where it shows the share's GPUs alone, nothing is wrong.
	s := viewsIn(t, run(t, append(h.Environ(share.Socket), "CUDA_VISIBLE_DEVICES="+share.CardUUID), program, "driver", "set=0", "look"))
	s.check(t, "started with the share's UUID", named(t, cards[1:2]), named(t, cards[1:2]))
	if told := len(h.events(t, event.CardsForeign, share.Name)); told != 1 {
		t.Errorf("%d events, want 1", told)
	}
}

// A program that does not load the front is alone with the driver, which counts from
// the machine's GPUs: what it finds in the variable leads to the share's.
func TestNumbersWithoutTheFront(t *testing.T) {
	t.Parallel()
	h, cards, share := numbered(t)
	got := run(t, h.Bare(), divvy(t), "run", "--agent", h.AgentSocket, "--share", share.Name, "--", built(t, "build", "test", "static-variable"))
	list := strings.TrimSpace(got.stdout)
	if got.code != 0 || list == "" {
		t.Fatalf("code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	s := viewsIn(t, run(t, append(h.Unheld(), "CUDA_VISIBLE_DEVICES="+list), built(t, "build", "test", "views"), "look"))
	if want := named(t, cards[1:2]); !slices.Equal(s.driver, want) {
		t.Errorf("CUDA_VISIBLE_DEVICES=%s shows %v without the front, want %v", list, s.driver, want)
	}
}

// A share of several GPUs, by an agent that the tests have: its third and first, in its
// own order, which is that of the numbers.
func TestNumbersOfSeveralGPUs(t *testing.T) {
	t.Parallel()
	h, cards, _ := numbered(t)
	program, agent := built(t, "build", "test", "views"), built(t, "build", "test", "test-agent")
	bytes := func(uuid string) string { return strings.ReplaceAll(strings.TrimPrefix(uuid, "GPU-"), "-", "") }
	a, b := cards[2], cards[0]
	all := named(t, []api.Card{a, b})
	for list, want := range map[string][]string{
		"unset": all, "set=0": all[:1], "set=1": all[1:], "set=0,1": all, "set=1,0": {all[1], all[0]}, "set=2": nil, "set=0,2,1": all[:1],
		"set=" + b.UUID: all[1:], "set=" + b.UUID + "," + a.UUID: {all[1], all[0]}, "set=" + b.UUID + ",0": {all[1], all[0]},
		"set=" + cards[1].UUID: nil, "set=1,1": nil, "set=": nil, "set=-1": nil, "set=1," + cards[1].UUID: all[1:],
	} {
		socket := filepath.Join(t.TempDir(), "share.sock")
		env := append(h.Environ(socket), "DIVVY_TEST_UUID="+bytes(a.UUID)+","+bytes(b.UUID))
		got := viewsIn(t, run(t, env, agent, socket, fmt.Sprint(512*mib), program, list, "look"))
		got.check(t, list, want, all)
	}
}

// In a root file system of its own, without any environment.
func TestNumbersInARootFileSystem(t *testing.T) {
	h, cards, share := numbered(t)
	front := filepath.Join(h.FrontDirectory, "libcuda.so.1")
	own := named(t, cards[1:2])
	for word, want := range map[string][]string{"unset": own, "set=0": own, "set=1": nil, "set=" + share.CardUUID: own, "set=": nil} {
		got := viewsIn(t, h.inContainer(t, front, share.Socket, false, "/programs/views", word, "look"))
		got.check(t, word, want, own)
	}
	bare := viewsIn(t, h.inContainer(t, "-", share.Socket, false, "/programs/views", "look"))
	if !slices.Equal(bare.driver, named(t, cards)) {
		t.Errorf("control without the front: %v", bare.driver)
	}
}

// TestNumbersInPodman: the same by a container runtime, with the variable from outside.
func TestNumbersInPodman(t *testing.T) {
	folder := t.TempDir()
	_, cards, share := numbered(t, "--cdi-dir", folder)
	p := newPodman(t, folder)
	own := named(t, cards[1:2])
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{nil, own}, {[]string{"--env", "CUDA_VISIBLE_DEVICES=0"}, own}, {[]string{"--env", "CUDA_VISIBLE_DEVICES=1"}, nil},
		{[]string{"--env", "CUDA_VISIBLE_DEVICES=" + share.CardUUID}, own}, {[]string{"--env", "CUDA_VISIBLE_DEVICES=" + cards[0].UUID}, nil},
		{[]string{"--env", "CUDA_VISIBLE_DEVICES=0,1,2"}, own}, {[]string{"--privileged"}, own},
	} {
		flags := append(append(device("share=second"), "--volume", built(t, "build", "test")+":/programs:ro"), c.flags...)
		command := p.run(t.Context(), flags, "/programs/views", "look")
		viewsIn(t, finish(t, command, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.work})).check(t, fmt.Sprint(c.flags), c.want, own)
	}
}

// A batch system's list, on a machine of which one GPU is divided: a MIG device is no
// place for a share, which is said; the list may still lead to a whole GPU.
func TestRunUnderABatchSystem(t *testing.T) {
	t.Parallel()
	d := &divided{host: newHost(t, hostOptions{cards: "3xH100-80GB"})}
	d.journal = d.directory + "/partition.journal"
	devices, err := d.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := named(t, devices.Cards)
	d.apply(t, d.goal(t, mix), 0, "--agent", d.AgentSocket)
	instance := d.devices(t)["3g.40gb"][0]
	under := func(list string, more ...string) outcome {
		words := append([]string{"run", "--agent", d.AgentSocket, "--mem", "512MiB"}, more...)
		return run(t, append(d.Bare(), "CUDA_VISIBLE_DEVICES="+list), divvy(t), append(words, "--", built(t, "build", "test", "views"), "look")...)
	}
	for list, want := range map[string]int{"1": 1, "2": 2, "2,1": -1, devices.Cards[2].UUID: 2, "1,0": 1} {
		got := viewsIn(t, under(list))
		if want < 0 { // the one with the most room, of two that are alike
			want = slices.Index(names, got.cuda[0])
		}
		got.check(t, "CUDA_VISIBLE_DEVICES="+list, names[want:want+1], names[want:want+1])
		if got.variable != "0" || want == 0 {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: GPU %d, and %s inside", list, want, got.variable)
		}
	}
	for _, c := range []struct {
		list string
		code int
		says string
	}{
		{instance, 4, "is a MIG device, and shares are on whole GPUs"}, {"MIG-nonsense", 3, "shows no GPU here"}, {instance + ",1", 2, "by MIG device and by number"},
		{"0", 3, "none of the GPUs to choose from is here"}, {"7", 3, "shows no GPU here"}, {"", 3, "shows no GPU here"},
	} {
		if got := under(c.list); got.code != c.code || !strings.Contains(got.stderr, c.says) || got.stdout != "" || strings.Count(got.stderr, "error:") != 1 {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: code %d, want %d and %q\n%s%s", c.list, got.code, c.code, c.says, got.stdout, got.stderr)
		}
	}
	if shares, err := d.client.Shares(t.Context()); err != nil || len(shares.Shares) != 0 {
		t.Errorf("left behind: %+v (%v)", shares, err)
	}
	// Control: without divvy run the same lists mean what the driver says.
	bare := viewsIn(t, run(t, append(d.Unheld(), "CUDA_VISIBLE_DEVICES=2,1"), built(t, "build", "test", "views"), "look"))
	if want := []string{names[2], names[1]}; !slices.Equal(bare.driver, want) {
		t.Errorf("without divvy run, 2,1 is %v, want %v", bare.driver, want)
	}
}

// CUDA_DEVICE_ORDER says how a batch system's numbers count; inside a share it changes
// nothing.
func TestRunHeedsDeviceOrder(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "L4,H100-80GB"})
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program, names := built(t, "build", "test", "views"), named(t, devices.Cards)
	for order, want := range map[string][]string{"PCI_BUS_ID": names, "FASTEST_FIRST": {names[1], names[0]}, "": names} {
		env := append(h.Bare(), "CUDA_DEVICE_ORDER="+order)
		if bare := viewsIn(t, run(t, append(env, "LD_LIBRARY_PATH="+h.DriverDirectory), program, "look")); !slices.Equal(bare.driver, want) {
			t.Errorf("control: CUDA_DEVICE_ORDER=%s shows %v without Divvy, want %v", order, bare.driver, want)
		}
		for number := range names {
			under := append(env, "CUDA_VISIBLE_DEVICES="+strconv.Itoa(number))
			got := viewsIn(t, run(t, under, divvy(t), "run", "--agent", h.AgentSocket, "--mem", "512MiB", "--", program, "look"))
			got.check(t, fmt.Sprintf("CUDA_DEVICE_ORDER=%s CUDA_VISIBLE_DEVICES=%d", order, number), want[number:number+1], want[number:number+1])
		}
	}
}
