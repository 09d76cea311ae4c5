// SPDX-License-Identifier: Apache-2.0

// Package plan answers what a fleet can carry: it reads lists of nodes and
// jobs, replays them against the placement policies in virtual time and
// reports what fits, what is left and what sharing would save.
package plan

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// Bounds of what is read from a file.
const (
	maxRecords     = 4_000_000
	maxFieldBytes  = 4096
	maxFileBytes   = 2 << 30 // after decompression
	secondsForever = 1 << 53
)

// Job is a request with its times, in seconds from the start of the trace.
type Job struct {
	placement.Request
	Created  float64
	Deleted  float64 // 0: unknown
	HasTimes bool
}

// InputError names the place in a file that cannot be used.
type InputError struct {
	File   string
	Line   int
	Reason string
}

func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// open returns the file's text, decompressed when it is gzip.
func open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := bufio.NewReader(f)
	magic, _ := b.Peek(2)
	if len(magic) < 2 || magic[0] != 0x1f || magic[1] != 0x8b {
		return readCloser{io.LimitReader(b, maxFileBytes), f}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		f.Close()
		return nil, &InputError{path, 0, "not gzip after all: " + err.Error()}
	}
	return readCloser{io.LimitReader(z, maxFileBytes), f}, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// table reads a CSV file with a header row and hands each record to row.
type table struct {
	file    string
	line    int
	columns map[string]int
	record  []string
	err     error
}

func readTable(file string, r io.Reader, required []string, row func(*table) error) error {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return &InputError{file, 1, "no header row: " + csvReason(err)}
	}
	t := &table{file: file, columns: map[string]int{}}
	for i, name := range header {
		t.columns[strings.TrimPrefix(strings.TrimSpace(name), "\ufeff")] = i
	}
	for _, name := range required {
		if _, ok := t.columns[name]; !ok {
			return &InputError{file, 1, fmt.Sprintf("no column %q; the header has %s", name, strings.Join(header, ", "))}
		}
	}
	for n := 0; ; n++ {
		t.record, err = c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		t.line, _ = c.FieldPos(0)
		if err != nil {
			return &InputError{file, t.line, csvReason(err)}
		}
		if n == maxRecords {
			return &InputError{file, t.line, fmt.Sprintf("more than %d records", maxRecords)}
		}
		t.err = nil
		if err := row(t); err != nil {
			return err
		}
	}
}

func csvReason(err error) string {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// text returns a column that may be absent.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	if len(t.record[i]) > maxFieldBytes {
		t.fail("%s is longer than %d bytes", column, maxFieldBytes)
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.record[i]))
}

// number returns a whole number from 0 to most.
func (t *table) number(column string, most int64) int64 {
	s := t.text(column)
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil:
		t.fail("%s is %q, want a whole number", column, s)
	case n < 0 || n > most:
		t.fail("%s is %d, want 0 to %d", column, n, most)
	}
	return n
}

func (t *table) fail(format string, args ...any) {
	if t.err == nil {
		t.err = &InputError{t.file, t.line, fmt.Sprintf(format, args...)}
	}
}

const (
	mostMilli = 1 << 40
	mostMiB   = 1 << 40
)

// ReadNodes reads a node list in the openb format, from plain or gzip CSV:
// sn, cpu_milli, memory_mib, gpu, model, and optionally gpu_memory_mib, rack.
func ReadNodes(path string) ([]placement.Node, error) {
	r, err := open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return parseNodes(path, r)
}

func parseNodes(file string, r io.Reader) ([]placement.Node, error) {
	var nodes []placement.Node
	seen := map[string]int{}
	err := readTable(file, r, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(t *table) error {
		n := placement.Node{
			Name:      t.text("sn"),
			Model:     t.text("model"),
			Rack:      t.text("rack"),
			CPUMilli:  t.number("cpu_milli", mostMilli),
			MemoryMiB: t.number("memory_mib", mostMiB),
		}
		cards := t.number("gpu", placement.MaxCards)
		var memory int64
		if t.text("gpu_memory_mib") != "" {
			memory = t.number("gpu_memory_mib", mostMiB)
		}
		if t.err != nil {
			return t.err
		}
		n.Cards = make([]placement.Card, cards)
		for i := range n.Cards {
			n.Cards[i].MemoryMiB = memory
		}
		if err := n.Validate(); err != nil {
			return &InputError{file, t.line, err.Error()}
		}
		if first, ok := seen[n.Name]; ok {
			return &InputError{file, t.line, fmt.Sprintf("node %s stands in line %d already", n.Name, first)}
		}
		seen[n.Name] = t.line
		nodes = append(nodes, n)
		return nil
	})
	if err == nil && len(nodes) == 0 {
		err = &InputError{file, 0, "no nodes"}
	}
	return nodes, err
}

// ReadJobs reads a job list in the openb format, from plain or gzip CSV: name,
// cpu_milli, memory_mib, num_gpu, gpu_milli, and optionally gpu_spec,
// creation_time, deletion_time, gpu_memory_mib, priority, tenant.
func ReadJobs(path string) ([]Job, error) {
	r, err := open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return parseJobs(path, r)
}

func parseJobs(file string, r io.Reader) ([]Job, error) {
	var jobs []Job
	err := readTable(file, r, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}, func(t *table) error {
		j := Job{Request: placement.Request{
			Name:      t.text("name"),
			CPUMilli:  t.number("cpu_milli", mostMilli),
			MemoryMiB: t.number("memory_mib", mostMiB),
			GPUs:      int(t.number("num_gpu", placement.MaxCards)),
			GPUMilli:  t.number("gpu_milli", placement.WholeCard),
			Tenant:    t.text("tenant"),
		}}
		if spec := t.text("gpu_spec"); spec != "" {
			j.Models = strings.Split(spec, "|")
		}
		if t.text("gpu_memory_mib") != "" {
			j.GPUMemoryMiB = t.number("gpu_memory_mib", mostMiB)
		}
		if t.text("priority") != "" {
			j.Priority = int(t.number("priority", 1_000_000))
		}
		if t.text("creation_time") != "" {
			j.Created = float64(t.number("creation_time", secondsForever))
			j.HasTimes = true
		}
		if t.text("deletion_time") != "" {
			j.Deleted = float64(t.number("deletion_time", secondsForever))
		}
		if t.err != nil {
			return t.err
		}
		if err := j.Validate(); err != nil {
			return &InputError{file, t.line, err.Error()}
		}
		jobs = append(jobs, j)
		return nil
	})
	if err == nil && len(jobs) == 0 {
		err = &InputError{file, 0, "no jobs"}
	}
	return jobs, err
}
