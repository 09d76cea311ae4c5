// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Bytes arrive after half a round trip, and no faster than the bandwidth.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		conditions Conditions
		arrives    time.Duration
	}{
		{Conditions{}, 0},
		{Conditions{RTT: 30 * time.Millisecond}, 15 * time.Millisecond},
		{Conditions{BytesPerSecond: 1 << 20}, 500 * time.Millisecond},
		{Conditions{RTT: 30 * time.Millisecond, BytesPerSecond: 1 << 20}, 515 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWay(c.conditions)
			sender, from := net.Pipe()
			to, receiver := net.Pipe()
			begun, done := time.Now(), make(chan bool, 1)
			go func() {
				done <- w.carry(to, from, func(err error) { t.Error(err) })
				to.Close()
			}()
			go func() {
				_, _ = sender.Write(make([]byte, 1<<19))
				sender.Close()
			}()
			got, err := io.ReadAll(receiver)
			if err != nil || len(got) != 1<<19 {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if took := time.Since(begun); took < c.arrives || took > c.arrives+time.Millisecond {
				t.Errorf("%+v: after %v, want %v", c.conditions, took, c.arrives)
			}
			if !<-done || w.count() != 1<<19 {
				t.Errorf("ended badly, after %d bytes", w.count())
			}
		})
	}
}

// A cut comes after the byte that it is to come after, whatever is written at once.
func TestCutAtAnyByte(t *testing.T) {
	text := []byte("0123456789")
	for n := range int64(2 * len(text)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWay(Conditions{RTT: time.Second})
			w.cutAfter(n)
			sender, from := net.Pipe()
			to, receiver := net.Pipe()
			var why error
			var once sync.Once
			done := make(chan bool)
			go func() {
				done <- w.carry(to, from, func(err error) {
					once.Do(func() { why = err })
					_, _ = from.Close(), to.Close()
				})
			}()
			go func() {
				_, _ = sender.Write(text)
				_, _ = sender.Write(text)
				sender.Close()
			}()
			got, _ := io.ReadAll(receiver)
			if want := append(text, text...)[:n]; !bytes.Equal(got, want) {
				t.Errorf("%q arrived, want %q", got, want)
			}
			if <-done || !errors.Is(why, errCut) {
				t.Errorf("ended by %v", why)
			}
		})
	}
}

// led is a link to a server that says back what it hears.
func led(t *testing.T) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	l, err := Lead(t.Context(), listener.Addr().String(), Conditions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		listener.Close()
		<-ended
	})
	return l
}

func reach(t *testing.T, l *Link) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func echo(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestLink(t *testing.T) {
	l := led(t)
	conn := reach(t, l)
	echo(t, conn, "hello")
	cut := l.CutAfter(Down, 3)
	if _, err := io.WriteString(conn, "lost"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); string(got) != "los" || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
	<-cut
	if up, down := l.Passed(Up), l.Passed(Down); up != 9 || down != 8 {
		t.Errorf("%d bytes there and %d back", up, down)
	}
	// Who comes later is let through, to its end.
	conn = reach(t, l)
	echo(t, conn, "again")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); len(rest) != 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// After a silence not even the kernel of the other end answers.
func TestSilence(t *testing.T) {
	l := led(t)
	conn := reach(t, l)
	echo(t, conn, "hello")
	if err := l.Silence(); err != nil {
		t.Fatal(err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 10); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "is anybody there"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) != 0 || !errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("%q, %v", got, err)
	}
}
