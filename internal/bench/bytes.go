// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// What bare processes say, as clib/tools/remotecalls.c does: bytes that follow and bytes
// that are to be answered, 4 bytes each, and what follows.
const (
	bareHeader = 8
	bareAnswer = 56
	bareBuffer = 64 << 10
	mostAnswer = 1 << 10
)

// Pass passes the bytes of two connections on to each other, with a loop for each direction
// and nothing else, until one of them ends. It closes both.
func Pass(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(b, a)
	}()
	pass(a, b)
	<-done
}

func pass(to, from net.Conn) {
	buffer := make([]byte, bareBuffer)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// Take takes what is said on a connection, and answers, until it ends.
func Take(conn net.Conn) error {
	in, answer := bufio.NewReaderSize(conn, 4*bareBuffer), make([]byte, mostAnswer)
	for {
		var header [bareHeader]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := in.Discard(int(binary.LittleEndian.Uint32(header[:]))); err != nil {
			return err
		}
		answered := binary.LittleEndian.Uint32(header[4:])
		if answered > mostAnswer {
			return fmt.Errorf("%d bytes are to be answered", answered)
		}
		if _, err := conn.Write(answer[:answered]); err != nil {
			return err
		}
	}
}

// Send says so many bytes so many times, and returns how long it took until all was taken.
func Send(conn net.Conn, length, times int) (time.Duration, error) {
	message := make([]byte, length)
	binary.LittleEndian.PutUint32(message, uint32(length-bareHeader))
	begun := time.Now()
	for n := range times {
		if n == times-1 {
			binary.LittleEndian.PutUint32(message[4:], bareAnswer)
		}
		if _, err := conn.Write(message); err != nil {
			return 0, fmt.Errorf("a bare hop: %w", err)
		}
	}
	if _, err := io.ReadFull(conn, message[:bareAnswer]); err != nil {
		return 0, fmt.Errorf("a bare hop: %w", err)
	}
	return time.Since(begun), nil
}
