// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/wire"
)

func connect(path string, kind int) (int, error) {
	file, err := syscall.Socket(syscall.AF_UNIX, kind|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := syscall.Connect(file, &syscall.SockaddrUnix{Name: path}); err != nil {
		_ = syscall.Close(file)
		return -1, err
	}
	return file, nil
}

func monotonic() uint64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return uint64(now.Nano())
}

func encode(m wire.Message) []byte {
	m.Magic, m.Version = wire.MessageMagic, wire.Version
	var packet [wire.MessageSize]byte
	m.Encode(&packet)
	return packet[:]
}

// attached is a process at a share's socket, as often as it likes.
type attached struct {
	file     int
	page     []byte
	sequence uint32
}

const answerSeconds = 5

// attach says HELLO, with the words of m.
func attach(path string, m wire.Message) (*attached, error) {
	file, err := connect(path, syscall.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	c := &attached{file: file}
	if err := c.hello(m); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *attached) hello(m wire.Message) error {
	m.Type = wire.Hello
	if err := c.send(m); err != nil {
		return err
	}
	readable := []unix.PollFd{{Fd: int32(c.file), Events: unix.POLLIN}}
	if _, err := unix.Poll(readable, answerSeconds*1000); err != nil {
		return err
	}
	var packet [wire.MessageSize]byte
	control := make([]byte, unix.CmsgSpace(2*4))
	n, rest, _, _, err := unix.Recvmsg(c.file, packet[:], control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	files, err := received(control[:rest])
	if err != nil {
		return err
	}
	defer func() {
		for _, file := range files {
			_ = unix.Close(file)
		}
	}()
	answer, err := wire.Decode(packet[:n])
	if err != nil {
		return err
	}
	if answer.Type != wire.Welcome || len(files) != 2 {
		return fmt.Errorf("refused: %s", answer.Line())
	}
	c.page, err = unix.Mmap(files[1], 0, wire.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

func received(control []byte) (files []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		files = append(files, more...)
	}
	return files, nil
}

func (c *attached) send(m wire.Message) error {
	c.sequence++
	m.Sequence = c.sequence
	return unix.Send(c.file, encode(m), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// drain reads what there is of answers.
func (c *attached) drain() {
	var packet [wire.MessageSize]byte
	for {
		if n, err := unix.Read(c.file, packet[:]); n <= 0 || err != nil {
			return
		}
	}
}

// put writes a word of the first card's account.
func (c *attached) put(offset int, value uint64) {
	binary.LittleEndian.PutUint64(c.page[wire.ClientOffsetCard+offset:], value)
}

func (c *attached) close() {
	if c.page != nil {
		_ = unix.Munmap(c.page)
	}
	_ = unix.Close(c.file)
}
