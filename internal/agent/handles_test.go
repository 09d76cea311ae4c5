// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe is known by itself, and its end is seen when the last of its copies is closed.
func TestPipesAreWatched(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	h := openHandles()
	name, pipe, err := h.nameOf(int(writer.Fd()))
	if err != nil || !pipe || name == "" {
		t.Fatalf("%q %v %v", name, pipe, err)
	}
	copied, err := unix.Dup(int(writer.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := h.nameOf(copied); err != nil || again != name {
		t.Errorf("a copy is %q, not %q: %v", again, name, err)
	}
	other, err := otherEnd(copied)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- awaitClosed(t.Context(), other) }()
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(copied, []byte("it is not read, and ends nothing")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("ended with a copy open: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := unix.Close(copied); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Who waits goes with the agent.
func TestWatchEndsWithTheAgent(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	other, err := otherEnd(int(writer.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := awaitClosed(ctx, other); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Files of one device have all the same number: they are told from each other by what was
// opened, whichever descriptor it is.
func TestFilesAreTold(t *testing.T) {
	open := func() int {
		file, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(file) })
		return file
	}
	one, two := open(), open()
	if !sameDescriptor(one, one) {
		t.Skip("the kernel does not compare descriptors")
	}
	h := openHandles()
	defer h.close()
	name, err := h.keep(one)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := unix.Dup(one)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(copied)
	if got, pipe, err := h.nameOf(copied); got != name || pipe || err != nil {
		t.Errorf("a copy is %q, not %q: %v", got, name, err)
	}
	if got, _, _ := h.nameOf(two); got != "" {
		t.Errorf("another file is %q", got)
	}
	h.forget(name)
	if got, _, _ := h.nameOf(copied); got != "" {
		t.Errorf("what is forgotten is %q", got)
	}
}

// What may lie in a file system of a user's own gets no name: a pipe with a place in a folder,
// and files.
func TestNoNamesForFiles(t *testing.T) {
	folder := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(folder, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := openHandles()
	defer h.close()
	for _, path := range []string{"pipe", "file"} {
		file, err := unix.Open(filepath.Join(folder, path), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(file)
		if name, pipe, err := h.nameOf(file); name != "" || pipe || err != nil {
			t.Errorf("%s: %q %v %v", path, name, pipe, err)
		}
		if name, err := h.keep(file); err == nil {
			t.Errorf("%s is kept as %q", path, name)
		}
	}
}
