// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/event"
)

// setClock moves the clock of the day that a process sees, and nobody else's: in its copy
// of the kernel's clock_gettime there is one that asks the kernel, and adds seconds to the
// answer for CLOCK_REALTIME.
func setClock(t *testing.T, pid int, ahead time.Duration) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("it takes machine code, which is written for amd64 alone")
	}
	find := func(pid any) (from, to uint64) {
		t.Helper()
		text, err := os.ReadFile(fmt.Sprintf("/proc/%v/maps", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasSuffix(line, "[vdso]\n") {
				if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
					t.Fatal(err)
				}
			}
		}
		return from, to
	}
	memory := func(pid any) *os.File {
		t.Helper()
		file, err := os.OpenFile(fmt.Sprintf("/proc/%v/mem", pid), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	from, to := find("self")
	image := make([]byte, to-from)
	if _, err := memory("self").ReadAt(image, int64(from)); err != nil {
		t.Fatal(err)
	}
	library, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := library.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	theirs, _ := find(pid)
	for _, s := range symbols {
		if s.Name != "__vdso_clock_gettime" {
			continue
		}
		code := []byte{
			0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, // mov eax, clock_gettime; syscall
			0x85, 0xff, 0x75, 0x0a, //          test edi, edi; jne over the next two
			0x48, 0x8b, 0x0d, 4, 0, 0, 0, //    mov rcx, [the seconds]
			0x48, 0x01, 0x0e, 0xc3, //          add [rsi], rcx; ret
		}
		code = binary.LittleEndian.AppendUint64(code, uint64(int64(ahead/time.Second)))
		if _, err := memory(pid).WriteAt(code, int64(theirs+s.Value)); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("the kernel has no clock_gettime for programs")
}

// The clock of the day jumps an hour forth and back under a running agent, and is another
// one when it starts again: shares keep their time and memory, runs go on, no program is
// forgotten, and usage has what they used, once. That the clock has jumped is seen by the times of events.
func TestClockJumps(t *testing.T) {
	const limit = 512 * mib
	h := newHost(t, hostOptions{})
	f := h.fixed(t)
	held := h.holder(t, h.share(t, "held", limit))
	do(t, held, "start")
	kept := alloc(t, held, 64*mib)
	running := h.startRun(t, "--name running --mem 1GiB")
	running.do("start")
	version, err := h.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hold := func(state string) {
		t.Helper()
		f.want(t, state, 2*time.Second)
		rest := uint64(limit) - 64*mib - contextBytes
		more := alloc(t, held, rest)
		refused(t, held, outOfMemory, "alloc 512")
		do(t, held, "free %d", more)
		do(t, held, "write %d %d", kept, mib)
		do(t, held, "check %d %d", kept, mib)
		running.do(fmt.Sprintf("alloc %d", mib))
		for _, name := range []string{"held", "running", "forty", "thirty"} {
			if s := h.look(t, name); s.Clients != 1 {
				t.Errorf("%s: share %s has %d clients", state, name, s.Clients)
			}
		}
	}
	jumps := 0
	jump := func(ahead time.Duration) {
		t.Helper()
		setClock(t, version.PID, ahead)
		jumps++
		name := fmt.Sprint("jump-", jumps)
		h.share(t, name, 128*mib)
		e := h.event(t, event.ShareCreated, name)
		if off := time.Until(e.Time) - ahead; off < -time.Minute || off > time.Minute {
			t.Fatalf("control: the clock is %v ahead, not %v", time.Until(e.Time), ahead)
		}
	}
	hold("before")
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		jump(ahead)
		hold(fmt.Sprintf("with a clock %v ahead", ahead))
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		jump(ahead)
		if err := syscall.Kill(version.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		dead := version.PID
		eventually(t, "another agent answers, and all are back", func() error {
			if version, err = h.client.Version(t.Context()); err == nil && version.PID == dead {
				err = fmt.Errorf("process %d answers", dead)
			}
			for _, name := range []string{"held", "running", "forty", "thirty"} {
				if err != nil {
					break
				}
				s, failed := h.client.Share(t.Context(), name)
				if err = failed; err == nil && (s.Clients != 1 || s.UsedBytes < contextBytes) {
					err = fmt.Errorf("share %s: %+v", name, s)
				}
			}
			return err
		}, h.agent)
		hold(fmt.Sprintf("restarted, with a clock that was %v ahead", ahead))
	}
	if late := h.events(t, event.ClientMissing, ""); len(late) > 0 {
		t.Errorf("forgotten: %+v", late)
	}
	owner := map[int]string{}
	for name, b := range f.burners {
		owner[b.pid] = name
		b.kill()
	}
	held.Kill()
	_ = running.stdin.Close()
	running.code()
	used, had := h.usage(t, owner)
	for name, is := range had {
		if off := (used[name] - is).Abs(); off > is/100+50*time.Millisecond {
			t.Errorf("usage of share %s is %v, its program had %v", name, used[name], is)
		}
	}
	if len(had) != len(f.burners) {
		t.Errorf("of %d programs %d had any time", len(f.burners), len(had))
	}
}
