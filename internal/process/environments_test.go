// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	gomaps "maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processes whose environment never comes (here pipes that nobody writes to) keep nobody, and
// there are no more reads that hang than a few, however often they are asked for.
func TestEnvironmentThatHangs(t *testing.T) {
	root := t.TempDir()
	const good, hanging, most = 7, 100, mostEnvironments
	environ := func(pid int) string {
		path := filepath.Join(root, strconv.Itoa(pid))
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(path, "environ")
	}
	if err := os.WriteFile(environ(good), []byte("A=b\x00C=d\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range most + 1 {
		if err := unix.Mkfifo(environ(hanging+i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := NewEnvironments(New(root))
	limited, cancel := context.WithTimeout(t.Context(), 10*time.Second) // far more than it takes
	defer cancel()
	soon := func(pid int) error {
		ctx, cancel := context.WithTimeout(limited, time.Millisecond)
		defer cancel()
		_, err := e.Read(ctx, pid)
		return err
	}
	if v := e.Variable(limited, good, "C"); v != "d" {
		t.Errorf("read %q", v)
	}
	for i := range most {
		if err := soon(hanging + i); !errors.Is(err, ErrSlow) {
			t.Errorf("%d: %v", i, err)
		}
	}
	// Neither one that has kept somebody waiting nor one too many is waited for, or read.
	for _, pid := range []int{hanging, hanging + most} {
		if _, err := e.Read(limited, pid); !errors.Is(err, ErrSlow) || limited.Err() != nil {
			t.Errorf("%d: %v", pid, err)
		}
	}
	e.mutex.Lock()
	hung := gomaps.Clone(e.reads)
	e.mutex.Unlock()
	for i := range most {
		r := hung[hanging+i]
		writer, err := os.OpenFile(environ(hanging+i), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = writer.Close()
		select {
		case <-r.done:
		case <-limited.Done():
			t.Fatal("a read has not ended")
		}
	}
	e.mutex.Lock()
	left := len(e.reads)
	e.mutex.Unlock()
	if left != 0 || e.Variable(limited, good, "A") != "b" {
		t.Errorf("%d reads are left", left)
	}
}

// Two that ask for the same process at once wait for the same read.
func TestEnvironmentAskedForTwice(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "7")
	if err := errors.Join(os.Mkdir(path, 0o700), unix.Mkfifo(filepath.Join(path, "environ"), 0o600)); err != nil {
		t.Fatal(err)
	}
	e := NewEnvironments(New(root))
	first := e.begin(7)
	if e.begin(7) != first {
		t.Error("another read")
	}
	writer, err := os.OpenFile(filepath.Join(path, "environ"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.WriteString("A=b\x00"); err != nil {
		t.Error(err)
	}
	_ = writer.Close()
	<-first.done
	if string(first.raw) != "A=b\x00" || first.err != nil {
		t.Errorf("%q, %v", first.raw, first.err)
	}
}
