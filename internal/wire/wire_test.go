// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func duplicate(t *testing.T, file int) int {
	t.Helper()
	copied, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestLimitsPageIsReadOnlyForOthers(t *testing.T) {
	page, err := NewLimitsPage("train")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	words := Words{Policy: PolicyFixed, Clients: 3, Cards: 1}
	words.Card[0] = CardWords{LimitBytes: 8 << 30, UsedBytes: 5, Flags: CardTight, UUID: [16]byte{1, 2}}
	page.Write(words, 77)

	if _, err := unix.Mmap(page.File(), 0, PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("a client can map the limits page writable")
	}
	if _, err := unix.Pwrite(page.File(), []byte{1}, 0); err == nil {
		t.Error("a client can write the limits page")
	}
	for _, size := range []int64{0, 2 * PageBytes} {
		if err := unix.Ftruncate(page.File(), size); err == nil {
			t.Errorf("a client can change the size of the limits page to %d", size)
		}
	}
	reader, err := OpenLimitsPage(duplicate(t, page.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if got, stamp := reader.Read(), reader.StampNs(0); got != words || stamp != 77 {
		t.Errorf("read %+v stamp %d, want %+v 77", got, stamp, words)
	}
	page.Used(0, 9, 78)
	if got, stamp := reader.Read(), reader.StampNs(0); got.Card[0].UsedBytes != 9 || stamp != 78 {
		t.Errorf("used %d at %d, want 9 at 78", got.Card[0].UsedBytes, stamp)
	}
}

func TestClientPageSurvivesItsClient(t *testing.T) {
	page, err := NewClientPage(42, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	for _, size := range []int64{0, 2 * PageBytes} {
		if err := unix.Ftruncate(page.File(), size); err == nil {
			t.Errorf("a client can change the size of its page to %d", size)
		}
	}
	if !page.Valid() || page.Token() != 42 {
		t.Error("a new page is not valid")
	}
	// A hole reads as zeros, never as a signal.
	if err := unix.Fallocate(page.File(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, PageBytes); err != nil {
		t.Fatal(err)
	}
	if page.Valid() {
		t.Error("a page full of zeros is valid")
	}
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	file, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(file, PageBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenClientPage(file); !errors.Is(err, ErrPage) {
		t.Errorf("an unsealed page: %v, want ErrPage", err)
	}
}

// Two mappings of one page, two sides: what is taken and given adds up, and what
// is in use is true at every moment.
func TestCreditAddsUp(t *testing.T) {
	mine, err := NewClientPage(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	theirs, err := OpenClientPage(duplicate(t, mine.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	const total, inUse, most, rounds = 1000 * AllocationUnit, 70 * AllocationUnit, 600 * AllocationUnit, 20000
	mine.Hold(0, inUse)
	mine.Grant(0, total, 0, false)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := range rounds {
				if n := uint64(i % most); theirs.Take(0, n) {
					theirs.Give(0, n)
				}
			}
		})
	}
	group.Go(func() {
		for range rounds {
			n := mine.Recall(0, inUse+total, most)
			if n > most {
				t.Errorf("took %d of at most %d", n, most)
			}
			if granted, _ := mine.Memory(0); granted != inUse+total-n {
				t.Errorf("%d are granted after %d of %d were taken back", granted, n, inUse+total)
			}
			mine.Grant(0, n, 0, false)
		}
	})
	group.Go(func() {
		for range rounds {
			if granted, credit := theirs.Memory(0); granted < inUse+credit {
				t.Errorf("%d granted, %d of it unused, and %d in use", granted, credit, inUse)
			}
		}
	})
	group.Wait()
	if credit, used := mine.SetAside(0); credit != total || used != inUse || theirs.Credit(0) != 0 {
		t.Errorf("%d left of %d, %d in use", credit, total, used)
	}
}

// The bounds of the word: what does not fit changes nothing.
func TestMemoryWord(t *testing.T) {
	page, err := NewClientPage(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	expect := func(granted, credit uint64, mark bool) {
		t.Helper()
		if g, c := page.Memory(3); g != granted || c != credit || page.Mark(3) != mark {
			t.Errorf("granted %d, credit %d, mark %v; want %d, %d, %v", g, c, page.Mark(3), granted, credit, mark)
		}
	}
	page.Grant(3, MostGranted, 0, false)
	expect(MostGranted, MostGranted, false)
	page.Grant(3, 1, 0, false)
	page.Grant(3, 0, math.MaxUint64, true)
	expect(MostGranted, MostGranted, false)
	if page.Take(3, MostGranted+1) || page.Take(3, math.MaxUint64) || page.Recall(3, MostGranted, AllocationUnit-1) != 0 ||
		page.Recall(3, MostGranted-AllocationUnit, AllocationUnit) != 0 {
		t.Error("more was taken than there is, or less than a unit, or of another grant")
	}
	if n := page.Recall(3, MostGranted, math.MaxUint64); n != MostGranted {
		t.Errorf("took back %d", n)
	}
	expect(0, 0, false)
	page.Grant(3, 0, AllocationUnit+1, true)
	expect(2*AllocationUnit, 0, true)
	page.Give(3, 1)
	expect(2*AllocationUnit, AllocationUnit, true)
	page.Grant(3, AllocationUnit, AllocationUnit, true)
	expect(4*AllocationUnit, 2*AllocationUnit, false)
}

func TestTextIsMadePrintable(t *testing.T) {
	var m Message
	m.SetText("cuFoo\x1b[31m\n" + string(bytes.Repeat([]byte("x"), 200)))
	if got := m.Line(); len(got) != TextBytes-1 || bytes.ContainsAny([]byte(got), "\x1b\n") {
		t.Errorf("line %q", got)
	}
	m.SetProcesses([]uint32{7, 8, 9})
	if got := m.ProcessIDs(); len(got) != 3 || got[2] != 9 {
		t.Errorf("process ids %v", got)
	}
}

// What decodes, encodes to the same bytes; nothing else is accepted.
func FuzzDecode(f *testing.F) {
	var buffer [MessageSize]byte
	m := Message{Magic: MessageMagic, Type: Charge, Version: Version, Amount: 512, Sequence: 3}
	m.SetText("cuMemAlloc")
	m.Encode(&buffer)
	f.Add(buffer[:])
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := Decode(packet)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatalf("error %v is not ErrMessage", err)
			}
			return
		}
		var again [MessageSize]byte
		m.Encode(&again)
		if !bytes.Equal(again[:], packet) {
			t.Fatalf("decoded and encoded: %x, was %x", again, packet)
		}
		if m.Type != Processed && len(m.Line()) >= TextBytes {
			t.Fatal("the text has no end")
		}
	})
}

// A process that can only read the limits page sleeps on it and is woken.
func TestLeaseWakesThoseWhoWait(t *testing.T) {
	page, err := NewLimitsPage("train")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	if err := page.SetLease(1, Lease{Gated: true, BacklogNs: 5e6}); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenLimitsPage(duplicate(t, page.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	word := reader.LeaseWord(1)
	if err := page.SetLease(1, Lease{Gated: true, BacklogNs: 5e6}); err != nil || reader.LeaseWord(1) != word {
		t.Errorf("a lease that says nothing new: word %d, was %d: %v", reader.LeaseWord(1), word, err)
	}
	granted := Lease{Gated: true, EndNs: 123, BacklogNs: 5e6}
	woken := make(chan error, 1)
	go func() {
		for reader.LeaseWord(1) == word {
			if err := reader.AwaitLease(1, word, 10e9); err != nil {
				woken <- err
				return
			}
		}
		woken <- nil
	}()
	if err := page.SetLease(1, granted); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Error(err)
	}
	if got := reader.Lease(1); got != granted {
		t.Errorf("lease %+v, want %+v", got, granted)
	}
	if err := reader.AwaitLease(1, reader.LeaseWord(1), 1e6); !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("waiting for nothing: %v", err)
	}
}

// TestMonotonicNs: programs compare it with the kernel's clock.
func TestMonotonicNs(t *testing.T) {
	for range 1000 {
		var before, after unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &before)
		ns := MonotonicNs()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)
		if late := before.Nano() - int64(ns); late > int64(100*time.Microsecond) || int64(ns) > after.Nano() {
			t.Fatalf("%d between %d and %d", ns, before.Nano(), after.Nano())
		}
	}
}
