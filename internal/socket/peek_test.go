// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unixPair is both ends of a connection.
func unixPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		file := os.NewFile(uintptr(fd), "pair")
		defer file.Close()
		c, err := net.FileConn(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

func TestPeek(t *testing.T) {
	a, b := unixPair(t)
	if _, err := a.Write([]byte("he")); err != nil {
		t.Fatal(err)
	}
	seen := make(chan error, 1)
	peeked := make([]byte, 5)
	go func() { seen <- Peek(b, peeked) }()
	if _, err := a.Write([]byte("llo!")); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil || string(peeked) != "hello" {
		t.Fatalf("%q, %v", peeked, err)
	}
	read := make([]byte, 6)
	if _, err := io.ReadFull(b, read); err != nil || string(read) != "hello!" {
		t.Errorf("%q, %v", read, err)
	}
	// Too little, and no more to come.
	if _, err := a.Write([]byte("he")); err != nil {
		t.Fatal(err)
	}
	if err := b.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := Peek(b, peeked); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("late: %v", err)
	}
	_ = b.SetReadDeadline(time.Time{})
	_ = a.Close()
	if err := Peek(b, peeked); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half: %v", err)
	}
	if _, err := io.ReadFull(b, read[:2]); err != nil {
		t.Fatal(err)
	}
	if err := Peek(b, peeked); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestHangup(t *testing.T) {
	a, b := unixPair(t)
	file, err := b.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	h, err := HangupOf(file)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- h.Wait() }()
	if _, err := a.Write([]byte("data is no hangup")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("hung up: %v", err)
	default:
	}
	_ = a.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	h.Close()
	if h, err = HangupOf(file); err != nil {
		t.Fatal(err)
	}
	if err := h.Wait(); err != nil {
		t.Errorf("after the hangup: %v", err)
	}
	h.Close()
	_, d := unixPair(t)
	other, err := d.File()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if h, err = HangupOf(other); err != nil {
		t.Fatal(err)
	}
	go func() { done <- h.Wait() }()
	h.Close()
	if err := <-done; err == nil {
		t.Error("closed, and hung up")
	}
}
