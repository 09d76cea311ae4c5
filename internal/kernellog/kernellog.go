// SPDX-License-Identifier: Apache-2.0

// Package kernellog reads what NVIDIA's kernel module writes about faults into the kernel's
// log. NVML leaves some out of its events, and never says whose program one is of.
//
// The format of a record is that of Documentation/ABI/testing/dev-kmsg of Linux, that of a
// message is shown in NVIDIA's "Xid Errors".
package kernellog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/pattern"
)

// Path is where the kernel's log is read.
const Path = "/dev/kmsg"

// XID is one fault.
type XID struct {
	PCIAddress string // like 0000:3b:00.0
	Number     uint64
	PID        int    // of the program, as the kernel counts; 0: not said
	Program    string // its name; empty: not said
}

// maxRecord is the most bytes of a record: the kernel writes at most 8 KiB.
const maxRecord = 16 << 10

// Log is an open log. One goroutine reads it; another may close it.
type Log struct {
	file   *os.File
	buffer [maxRecord]byte
}

// Open opens a log at its end: what was written before is not read.
func Open(path string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the kernel's log: %w", err)
	}
	_, _ = file.Seek(0, io.SeekEnd) // a pipe has no end
	return &Log{file: file}, nil
}

// Close ends Next.
func (l *Log) Close() error { return l.file.Close() }

// Next waits for faults and returns those of the next record that has any.
func (l *Log) Next() (found []XID, err error) {
	for len(found) == 0 {
		n, err := l.file.Read(l.buffer[:])
		switch {
		case errors.Is(err, unix.EPIPE): // it was written faster than we read
		case err != nil:
			return nil, fmt.Errorf("read the kernel's log: %w", err)
		}
		for line := range strings.SplitSeq(string(l.buffer[:n]), "\n") {
			if x, ok := parse(line); ok {
				found = append(found, x)
			}
		}
	}
	return found, nil
}

var (
	xidMessage = pattern.Of(`^NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?\): ([0-9]{1,6})(?:,|$)`)
	xidPID     = pattern.Of(`[ ,]pid='?([0-9]{1,10})'?(?:,|$)`)
	xidProgram = pattern.Of(`[ ,]name=([^,<]{1,64})(?:,|$)`)
)

// facilityBits are above the priority in a record's first number; 0 is the kernel itself,
// everything else was written by a program.
const facilityBits = 3

func parse(record string) (x XID, ok bool) {
	head, message, ok := strings.Cut(record, ";")
	first, _, _ := strings.Cut(head, ",")
	if priority, err := strconv.ParseUint(first, 10, 32); !ok || err != nil || priority>>facilityBits != 0 {
		return XID{}, false
	}
	parts := xidMessage().FindStringSubmatch(message)
	if parts == nil {
		return XID{}, false
	}
	domain, err := strconv.ParseUint(parts[1], 16, 32)
	number, err2 := strconv.ParseUint(parts[4], 10, 32)
	if err != nil || err2 != nil {
		return XID{}, false
	}
	x = XID{PCIAddress: strings.ToLower(fmt.Sprintf("%04x:%s:%s.0", domain, parts[2], parts[3])), Number: number}
	if pid := xidPID().FindStringSubmatch(message); pid != nil {
		if n, err := strconv.ParseInt(pid[1], 10, 32); err == nil {
			x.PID = int(n)
		}
	}
	if program := xidProgram().FindStringSubmatch(message); program != nil {
		x.Program = printable(program[1])
	}
	return x, true
}

// printable is a name without what a terminal would take for commands: a program names itself.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
}
