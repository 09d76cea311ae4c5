// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var records = []struct {
	record string
	want   XID
}{
	{"4,1234,98765432,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python3, Ch 00000008, intr 10000000. MMU Fault", XID{"0000:3b:00.0", 31, 1234, "python3"}},
	{"4,1,2,-,caller=T7;NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", XID{"0000:65:00.0", 79, 0, ""}},
	{"4,1,2,-;NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus", XID{"0000:44:00.0", 79, 0, ""}},
	{"4,1,2,-;NVRM: Xid (0000:03:00): 14, Channel 00000001", XID{"0000:03:00.0", 14, 0, ""}},
	{"4,1,2,-;NVRM: Xid (PCI:0000:C1:00.0): 13, pid='77', name=a b", XID{"0000:c1:00.0", 13, 77, "a b"}},
	{"4,1,2,-;NVRM: Xid (PCI:00010000:01:00): 94", XID{"10000:01:00.0", 94, 0, ""}},
	{"4,1,2,-;NVRM: Xid (PCI:0000:01:00): 45, pid=99999999999, name=\x1b[2Jclear", XID{"0000:01:00.0", 45, 0, "[2Jclear"}},
	// A program wrote it: its facility is not the kernel's.
	{"12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", XID{}},
	{"4,1,2,-;NVRM: Xid (PCI:0000:3b:00): many", XID{}},
	{"4,1,2,-;NVRM: Xid (PCI:3b:00): 31", XID{}},
	{"4,1,2,-;nvidia-uvm: Loaded the UVM driver", XID{}},
	{" SUBSYSTEM=pci", XID{}},
	{";NVRM: Xid (PCI:0000:3b:00): 31", XID{}},
	{"", XID{}},
}

func TestParse(t *testing.T) {
	for _, c := range records {
		if got, ok := parse(c.record); got != c.want || ok != (c.want != XID{}) {
			t.Errorf("%q is %+v, %v; want %+v", c.record, got, ok, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range records {
		f.Add(c.record)
	}
	f.Fuzz(func(t *testing.T, record string) {
		x, ok := parse(record)
		if !ok && x != (XID{}) || ok && (x.PCIAddress == "" || x.PID < 0 || len(x.Program) > 64 || printable(x.Program) != x.Program) {
			t.Errorf("%q is %+v, %v", record, x, ok)
		}
	})
}

// A log is read from its end on, record by record, until it is closed.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(writer, "6,1,1,-;other\n DEVICE=+pci:0000:3b:00.0\n4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=x, double\n4,3,3,-;NVRM: Xid (PCI:0000:3b:00): 63, pid=7, name=x, row\n")
	found, err := l.Next()
	if err != nil || len(found) != 2 || found[0].Number != 48 || found[1].Number != 63 {
		t.Errorf("found %+v, %v", found, err)
	}
	ended := make(chan error)
	go func() {
		_, err := l.Next()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after it was closed: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// The kernel's own log, where it may be read.
func TestKernelsLog(t *testing.T) {
	l, err := Open(Path)
	if err != nil {
		t.Skip(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
