// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is both ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
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

// piped is the two outer ends of a pipe that runs.
func piped(t *testing.T) (p *Pipe, client, worker *net.UnixConn, ended, done chan struct{}) {
	t.Helper()
	client, near := pair(t)
	far, worker := pair(t)
	p, done = New(near, far), make(chan struct{})
	go func() {
		p.Run()
		close(done)
	}()
	return p, client, worker, p.NearEnded, done
}

func TestPipe(t *testing.T) {
	p, client, worker, ended, done := piped(t)
	long := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	go func() {
		_, _ = client.Write(long)
		_ = client.CloseWrite()
	}()
	got, err := io.ReadAll(worker)
	if err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d bytes of %d, %v", len(got), len(long), err)
	}
	<-ended
	// The other direction goes on after the client's has ended.
	if _, err := worker.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	_ = worker.Close()
	if got, err = io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("%q, %v", got, err)
	}
	<-done
	if p.Sent.Load() != uint64(len(long)) || p.Received.Load() != 6 {
		t.Errorf("counted %d and %d bytes", p.Sent.Load(), p.Received.Load())
	}
}

// A worker that has ended takes the client's connection with it, though that sends nothing.
func TestBroken(t *testing.T) {
	_, client, worker, _, done := piped(t)
	_ = worker.Close()
	if _, err := io.ReadAll(client); err != nil {
		t.Error(err)
	}
	_, _ = client.Write([]byte("too late"))
	<-done
}

func TestClose(t *testing.T) {
	p, client, worker, ended, done := piped(t)
	p.Close()
	<-ended
	<-done
	for _, end := range []net.Conn{client, worker} {
		if n, err := end.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}
