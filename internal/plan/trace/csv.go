// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/placement"
)

// columns of one kind of list.
type columns struct {
	required, optional []string
	unused             []string // known from the public lists, without a bearing on a plan
}

var (
	nodeColumns = columns{
		required: []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"},
		optional: []string{"gpu_memory_mib", "rack", "mig", "islands"},
	}
	jobColumns = columns{
		required: []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
		optional: []string{"gpu_spec", "gpu_memory_mib", "creation_time", "deletion_time", "priority", "tenant", "gang", "profile", "linked", "node"},
		unused:   []string{"qos", "pod_phase", "scheduled_time"},
	}
)

// table reads a CSV file with a header row and hands each record to row.
type table struct {
	file    string
	line    int
	columns map[string]int
	record  []string
	err     error
}

func readTable(in *input, known columns, notes *[]string, row func(*table) error) error {
	file := in.file
	c := csv.NewReader(&bounded{in, maxFileBytes, errTooLarge})
	c.ReuseRecord = true
	header, err := c.Read()
	if err != nil {
		return &InputError{file, 1, "no header row: " + csvReason(err)}
	}
	t := &table{file: file, columns: map[string]int{}}
	for i, name := range header {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := t.columns[name]; twice {
			return &InputError{file, 1, fmt.Sprintf("column %q is there twice", name)}
		}
		t.columns[name] = i
	}
	for _, name := range known.required {
		if _, ok := t.columns[name]; !ok {
			return &InputError{file, 1, fmt.Sprintf("no column %q; the header has %s", name, strings.Join(header, ", "))}
		}
	}
	for _, name := range header {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if !slices.Contains(slices.Concat(known.required, known.optional, known.unused), name) {
			note(notes, "%s: column %q is not known and not used", file, name)
		}
	}
	for n := 0; ; n++ {
		t.record, err = c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &InputError{file, csvLine(err, t.line+1), csvReason(err)}
		}
		t.line, _ = c.FieldPos(0)
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
	switch {
	case errors.Is(err, io.EOF):
		return "the file is empty"
	case errors.As(err, &p):
		return p.Err.Error()
	}
	return err.Error()
}

func csvLine(err error, line int) int {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return p.Line
	}
	return line
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

// optional returns a number that may be left empty, and whether it is there.
func (t *table) optional(column string, most int64) (int64, bool) {
	if t.text(column) == "" {
		return 0, false
	}
	return t.number(column, most), true
}

func (t *table) fail(format string, args ...any) {
	if t.err == nil {
		t.err = &InputError{t.file, t.line, fmt.Sprintf(format, args...)}
	}
}

// readCSV reads the openb format with optional columns of ours.
func (l *Nodes) readCSV(in *input) error {
	seen := map[string]int{}
	return readTable(in, nodeColumns, &l.Notes, func(t *table) error {
		n := placement.Node{
			Name:      t.text("sn"),
			Model:     t.text("model"),
			Rack:      t.text("rack"),
			CPUMilli:  t.number("cpu_milli", mostMilli),
			MemoryMiB: t.number("memory_mib", mostMiB),
		}
		n.Cards = make([]placement.Card, t.number("gpu", placement.MaxCards)*b2i(t.err == nil))
		memory, _ := t.optional("gpu_memory_mib", mostMiB)
		islands := strings.Split(t.text("islands"), "|")
		product, reason := l.partitioned(t.text("mig"))
		if reason != "" {
			t.fail("mig: %s", reason)
		}
		if islands[0] != "" && len(islands) != len(n.Cards) {
			t.fail("islands has %d numbers for %d GPUs", len(islands), len(n.Cards))
		}
		for i := range n.Cards {
			n.Cards[i] = placement.Card{MemoryMiB: memory, MIG: product}
			if islands[0] == "" || t.err != nil {
				continue
			}
			island, err := strconv.Atoi(islands[i])
			if err != nil {
				t.fail("islands is %q, want numbers with | between", t.text("islands"))
			}
			n.Cards[i].Island = island
		}
		if t.err != nil {
			return t.err
		}
		return l.add(n, t.line, seen)
	})
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// partitioned is product where no name is no partitioning, and why there is none.
func (l *Nodes) partitioned(name string) (*mig.Product, string) {
	if name == "" {
		return nil, ""
	}
	p, err := l.product(name)
	switch {
	case err != nil:
		return nil, err.Error()
	case p == nil:
		return nil, fmt.Sprintf("no partitioning rules known for %q", name)
	}
	return p, ""
}

func (l *Jobs) readCSV(in *input) error {
	return readTable(in, jobColumns, &l.Notes, func(t *table) error {
		j := Job{Line: t.line, Gang: t.text("gang"), Node: t.text("node"), Request: placement.Request{
			Name:      t.text("name"),
			CPUMilli:  t.number("cpu_milli", mostMilli),
			MemoryMiB: t.number("memory_mib", mostMiB),
			GPUs:      int(t.number("num_gpu", placement.MaxCards)),
			GPUMilli:  t.number("gpu_milli", placement.WholeCard),
			Profile:   t.text("profile"),
			Tenant:    t.text("tenant"),
		}}
		if spec := t.text("gpu_spec"); spec != "" {
			j.Models = strings.Split(spec, "|")
		}
		j.GPUMemoryMiB, _ = t.optional("gpu_memory_mib", mostMiB)
		priority, _ := t.optional("priority", mostPriority)
		j.Priority = int(priority)
		switch linked := t.text("linked"); linked {
		case "", "0", "false":
		case "1", "true":
			j.Linked = true
		default:
			t.fail("linked is %q, want true or false", linked)
		}
		created, hasCreated := t.optional("creation_time", secondsForever)
		deleted, hasDeleted := t.optional("deletion_time", secondsForever)
		j.Created, j.Deleted, j.Timed = float64(created), float64(deleted), hasCreated && hasDeleted
		if t.err != nil {
			return t.err
		}
		return l.add(j)
	})
}
