// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHandedConnectionIsNotPolled: Go's poller would wake the server for every frame that a
// worker gets. What it polls takes deadlines.
func TestHandedConnectionIsNotPolled(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	end := os.NewFile(uintptr(fds[0]), "connection")
	generic, err := net.FileConn(end)
	_ = end.Close()
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := unixOf(generic)
	defer conn.Close()
	polled, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer polled.Close()
	if err := polled.SetDeadline(time.Now()); err != nil {
		t.Errorf("another descriptor of a connection is not polled here: %v", err)
	}
	file, err := blocking(conn)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.SetDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("the server polls what it gives a worker: %v", err)
	}
}
