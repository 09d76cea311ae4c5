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
	ends     []int       // of pipes that have names
	numbers  [256]uint64 // that answers had, of memory with names
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

// mostEnds is how many ends of pipes a process keeps, with others of them in flight.
const mostEnds = 64

// sendPipe sends the end of a new pipe with a message, and may keep the other one.
func (c *attached) sendPipe(m wire.Message, keep bool) error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(ends[1])
	if keep && len(c.ends) < mostEnds {
		c.ends = append(c.ends, ends[0])
	} else {
		defer unix.Close(ends[0])
	}
	c.sequence++
	m.Sequence = c.sequence
	return unix.Sendmsg(c.file, encode(m), unix.UnixRights(ends[1]), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// drain reads what there is of answers, and keeps some of the numbers in them.
func (c *attached) drain() {
	var packet [wire.MessageSize]byte
	for {
		n, err := unix.Read(c.file, packet[:])
		if n <= 0 || err != nil {
			return
		}
		if m, err := wire.Decode(packet[:n]); err == nil && m.Token != 0 && m.Status == wire.StatusOK {
			c.numbers[m.Sequence%uint32(len(c.numbers))] = m.Token
		}
	}
}

// put writes a word of the first card's account.
func (c *attached) put(offset int, value uint64) {
	binary.LittleEndian.PutUint64(c.page[wire.ClientOffsetCard+offset:], value)
}

func (c *attached) close() {
	for _, end := range c.ends {
		_ = unix.Close(end)
	}
	if c.page != nil {
		_ = unix.Munmap(c.page)
	}
	_ = unix.Close(c.file)
}
