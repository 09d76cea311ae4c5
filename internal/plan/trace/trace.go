// SPDX-License-Identifier: Apache-2.0

// Package trace reads lists of nodes and jobs for the planner: CSV in the
// format of the public openb lists, a JSON shape of our own, and what
// `kubectl get nodes,pods -o json` or `-o yaml` prints; each plain or gzip. It decides by
// content, not by name.
//
// Whatever cannot be used is an *InputError with file, line and reason. What
// is read and has no bearing on a plan is told as a note: nothing is skipped
// in silence.
package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/pattern"
	"github.com/divvy-gpu/divvy/internal/placement"
)

// Bounds of what is read from a file.
const (
	maxRecords     = 2_000_000
	maxFieldBytes  = 4096
	maxFileBytes   = 1 << 30 // CSV, after decompression
	maxJSONBytes   = 256 << 20
	maxObjectBytes = 4 << 20   // of one node, job, or object of a cluster that is no list: a cluster keeps 1.5 at most
	maxObjects     = 500_000   // of a cluster
	maxParts       = 8_000_000 // fields and elements of those: 32 bytes each in the longest list
	maxLists       = 8         // in each other
	maxInflation   = 100       // of a compressed file: lists shrink to a tenth or a thirtieth
	leastInflated  = 16 << 20  // that any may become
	secondsForever = 1 << 53
	mostMilli      = 1 << 40
	mostMiB        = 1 << 40
	mostPriority   = 2_000_001_000 // the highest priority that Kubernetes knows
)

// Nodes is a node list as it was read.
type Nodes struct {
	File  string
	Nodes []placement.Node
	Notes []string // what was read and not used

	kube  map[string]kubeNode // of a cluster's list, by name; nil: it is none
	table *mig.Table          // nil: no node needed it so far
}

// product finds a card model that serves partitions, by its key, its driver's name
// or its cluster label; nil: such are not known.
func (l *Nodes) product(name string) (*mig.Product, error) {
	if l.table == nil {
		var err error
		if l.table, err = mig.Default(); err != nil {
			return nil, err
		}
	}
	p, _ := l.table.ByLabel(name)
	return p, nil
}

// Jobs is a job list as it was read.
type Jobs struct {
	File  string
	Jobs  []Job
	Notes []string
}

// Workload names the list in reports: the file's base name without the
// prefix of the public lists and without extensions.
func (j *Jobs) Workload() string { return WorkloadName(j.File) }

// WorkloadName is the name that the list in file has in reports.
func WorkloadName(file string) string {
	name := strings.TrimPrefix(filepath.Base(file), "openb_pod_list_")
	for {
		switch ext := filepath.Ext(name); ext {
		case ".gz", ".csv", ".json", ".yaml", ".yml":
			name = strings.TrimSuffix(name, ext)
			continue
		}
		return name
	}
}

// Job is a request with its times, in seconds from the start of the trace.
type Job struct {
	placement.Request
	Line    int    // where it stands in its file
	Gang    string // jobs of one gang start together; empty: alone
	Node    string // where it runs already; empty: nowhere yet
	Created float64
	Deleted float64
	Timed   bool // both times are known

	rules *kubeRules // what a pod says of nodes; nil: it is no pod
}

// InputError names the place in a file that cannot be used.
type InputError struct {
	File   string
	Line   int
	Reason string
}

// errNone is of a list that has nothing of what is looked for, and nothing wrong.
type errNone struct {
	*InputError
	notes []string
}

func (e *errNone) Unwrap() error { return e.InputError }

func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
}

// input is a list while it is read.
type input struct {
	file string
	*bufio.Reader
	closers []io.Closer
}

func newInput(file string, r io.Reader) *input {
	return &input{file: file, Reader: bufio.NewReaderSize(r, 1<<16)}
}

func (i *input) Close() {
	for _, c := range i.closers {
		c.Close() // only read from: nothing is lost
	}
}

// standardInput is how a command line names it.
const standardInput = "-"

// Source is a list, or both, before it is read. What a pipe gives, it gives once: that is
// kept.
type Source struct {
	file string
	kept []byte // of what is no regular file
	size int64
}

// Open finds a list: a file, a pipe, or - for the standard input.
func Open(file string) (*Source, error) {
	f := os.Stdin
	if file == standardInput {
		file = "standard input"
	} else {
		var err error
		if f, err = os.Open(file); err != nil {
			return nil, err
		}
		defer f.Close() // only read from: nothing is lost
	}
	s := &Source{file: file}
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, &InputError{file, 0, "is a folder, want a list"}
	case f != os.Stdin && info.Mode().IsRegular():
		s.size = info.Size()
		return s, nil
	}
	var err error
	if s.kept, err = io.ReadAll(&bounded{f, maxJSONBytes, errPipeTooLarge}); err != nil {
		return nil, &InputError{file, 0, err.Error()}
	}
	s.size = int64(len(s.kept))
	return s, nil
}

// open returns the text, decompressed when it is gzip.
func (s *Source) open() (*input, error) {
	var in *input
	if s.kept != nil {
		in = newInput(s.file, bytes.NewReader(s.kept))
	} else {
		f, err := os.Open(s.file)
		if err != nil {
			return nil, err
		}
		in = newInput(s.file, f)
		in.closers = []io.Closer{f}
	}
	magic, _ := in.Peek(2)
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in.decoded(), nil
	}
	z, err := gzip.NewReader(in.Reader)
	if err != nil {
		in.Close()
		return nil, &InputError{s.file, 0, "starts like gzip and is not: " + err.Error()}
	}
	unpacked := newInput(s.file, &bounded{z, max(maxInflation*min(s.size, maxFileBytes), leastInflated), errInflated})
	unpacked.closers = append([]io.Closer{z}, in.closers...)
	return unpacked.decoded(), nil
}

// decoded reads text that Windows' shells wrote: with a mark of its encoding before it.
func (i *input) decoded() *input {
	mark, _ := i.Peek(3)
	switch {
	case bytes.Equal(mark, []byte("\xef\xbb\xbf")):
		_, _ = i.Discard(3)
	case len(mark) >= 2 && (mark[0] == 0xff && mark[1] == 0xfe || mark[0] == 0xfe && mark[1] == 0xff):
		_, _ = i.Discard(2)
		wide := &utf16Text{from: i.Reader, big: mark[0] == 0xfe}
		return &input{file: i.file, Reader: bufio.NewReaderSize(wide, 1<<16), closers: i.closers}
	}
	return i
}

// utf16Text reads UTF-16 as UTF-8.
type utf16Text struct {
	from *bufio.Reader
	big  bool
	left []byte
}

func (u *utf16Text) unit() (rune, error) {
	var raw [2]byte
	if _, err := io.ReadFull(u.from, raw[:]); err != nil {
		return 0, err
	}
	if u.big {
		return rune(raw[0])<<8 | rune(raw[1]), nil
	}
	return rune(raw[1])<<8 | rune(raw[0]), nil
}

func (u *utf16Text) Read(p []byte) (int, error) {
	for len(u.left) == 0 {
		r, err := u.unit()
		if err == nil && utf16.IsSurrogate(r) {
			var low rune
			low, err = u.unit()
			r = utf16.DecodeRune(r, low)
		}
		if err != nil {
			return 0, err
		}
		u.left = utf8.AppendRune(nil, r)
	}
	n := copy(p, u.left)
	u.left = u.left[n:]
	return n, nil
}

// form is how a list is written.
type form int

const (
	formCSV form = iota
	formJSON
	formYAML
	formUnknown
)

// yamlStart is how what kubectl prints as YAML begins.
var yamlStart = pattern.Of(`^(---|- |#|%YAML|[A-Za-z]+:(\s|$))`)

// form looks at the first line that is not empty.
func (i *input) form() form {
	head, _ := i.Peek(i.Size()) // less than that has an error, and is looked at all the same
	head = bytes.TrimLeft(head, " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case len(head) == 0:
		return formCSV // which says that it is empty
	case head[0] == '{' || head[0] == '[':
		return formJSON
	case yamlStart().Match(line):
		return formYAML
	case bytes.IndexByte(line, ',') < 0 || bytes.IndexByte(line, 0) >= 0:
		return formUnknown
	}
	return formCSV
}

const unknownForm = "none of the lists that are known: CSV with a header, JSON, or what kubectl get nodes,pods -A -o json (or yaml) prints"

// bounded fails, other than io.LimitReader, when there is more than most bytes.
type bounded struct {
	from io.Reader
	left int64
	err  error // when there is more
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.err
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

var (
	errTooLarge     = fmt.Errorf("the file is too large (at most %d GiB of CSV, %d MiB of JSON)", maxFileBytes>>30, maxJSONBytes>>20)
	errYAMLTooLarge = fmt.Errorf("the YAML is too large (at most %d MiB): ask kubectl for -o json", maxYAMLBytes>>20)
	errPipeTooLarge = fmt.Errorf("more than %d MiB from a pipe: save it to a file", maxJSONBytes>>20)
	errInflated     = fmt.Errorf("the compressed file holds more than %d times its size: decompress it if that is meant", maxInflation)
)

// ReadNodes reads a node list.
func ReadNodes(file string) (*Nodes, error) {
	s, err := Open(file)
	if err != nil {
		return nil, err
	}
	return s.Nodes()
}

// Nodes reads the nodes of a list.
func (s *Source) Nodes() (*Nodes, error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return parseNodes(s.file, in)
}

func parseNodes(file string, in *input) (*Nodes, error) {
	list := &Nodes{File: file}
	var err error
	switch in.form() {
	case formJSON:
		err = list.readJSON(in)
	case formYAML:
		err = walkYAML(in, list.visitor())
	case formUnknown:
		err = &InputError{file, 1, unknownForm}
	default:
		err = list.readCSV(in)
	}
	if err == nil && len(list.Nodes) == 0 {
		err = &InputError{file, 0, "no nodes" + because(list.Notes)}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// ReadJobs reads a job list.
func ReadJobs(file string) (*Jobs, error) {
	s, err := Open(file)
	if err != nil {
		return nil, err
	}
	return s.Jobs()
}

// Jobs reads the jobs of a list.
func (s *Source) Jobs() (*Jobs, error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return parseJobs(s.file, in)
}

// JobsBeside reads the jobs that stand in a list of nodes, whatever its name: a cluster's
// has both. That there are none is no error.
func (s *Source) JobsBeside() (*Jobs, error) {
	in, err := s.open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if in.form() == formCSV {
		return &Jobs{File: s.file}, nil
	}
	jobs, err := parseJobs(s.file, in)
	if none, is := errors.AsType[*errNone](err); is {
		return &Jobs{File: s.file, Notes: none.notes}, nil
	}
	return jobs, err
}

func parseJobs(file string, in *input) (*Jobs, error) {
	list := &Jobs{File: file}
	var err error
	switch in.form() {
	case formJSON:
		err = list.readJSON(in)
	case formYAML:
		err = list.read(in, walkYAML)
	case formUnknown:
		err = &InputError{file, 1, unknownForm}
	default:
		err = list.readCSV(in)
	}
	if err == nil && len(list.Jobs) == 0 {
		err = &errNone{&InputError{file, 0, "no jobs" + because(list.Notes)}, list.Notes}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

// because appends what was left out to a complaint that nothing is left.
func because(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// note adds a remark once.
func note(notes *[]string, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(*notes, text) {
		*notes = append(*notes, text)
	}
}

// add checks a node and takes it into the list; seen holds the lines of the
// names so far.
func (l *Nodes) add(n placement.Node, line int, seen map[string]int) error {
	if err := n.Validate(); err != nil {
		return &InputError{l.File, line, err.Error()}
	}
	if first, ok := seen[n.Name]; ok {
		return &InputError{l.File, line, fmt.Sprintf("node %s is in line %d already", n.Name, first)}
	}
	seen[n.Name] = line
	l.Nodes = append(l.Nodes, n)
	return nil
}

// add checks a job and takes it into the list.
func (l *Jobs) add(j Job) error {
	if err := j.Validate(); err != nil {
		return &InputError{l.File, j.Line, err.Error()}
	}
	if j.Timed && j.Deleted < j.Created {
		return &InputError{l.File, j.Line, fmt.Sprintf("job %s is deleted at %.0f, before it is created at %.0f", j.Name, j.Deleted, j.Created)}
	}
	if len(l.Jobs) == maxRecords {
		return &InputError{l.File, j.Line, fmt.Sprintf("more than %d jobs", maxRecords)}
	}
	l.Jobs = append(l.Jobs, j)
	return nil
}

// CheckModels reports jobs that ask only for card models or partitions that no
// node has. The first such job is an error unless allow says that they may
// wait for ever; models that are missing beside others are a note.
func CheckModels(nodes *Nodes, jobs *Jobs, allow bool) error {
	models, profiles := map[string]bool{}, map[string]bool{}
	var names []string
	for _, n := range nodes.Nodes {
		if n.Model != "" && !models[n.Model] {
			models[n.Model] = true
			names = append(names, n.Model)
		}
		for _, c := range n.Cards {
			if c.MIG != nil {
				for _, p := range c.MIG.Profiles {
					profiles[p.Name] = true
				}
			}
		}
	}
	slices.Sort(names)
	hopeless := 0
	for i := range jobs.Jobs {
		j := &jobs.Jobs[i]
		known := len(j.Models) == 0
		for _, m := range j.Models {
			if models[m] {
				known = true
			} else {
				note(&jobs.Notes, "no node has GPU model %q, which some jobs would take", m)
			}
		}
		reason := ""
		switch {
		case j.GPUs > 0 && !known:
			reason = fmt.Sprintf("job %s: unknown GPU model %s; the nodes have %s", j.Name, strings.Join(j.Models, "|"), orNone(names))
		case j.Profile != "" && !profiles[j.Profile]:
			reason = fmt.Sprintf("job %s: no node can make partition %s", j.Name, j.Profile)
		default:
			continue
		}
		if !allow {
			return &InputError{jobs.File, j.Line, reason}
		}
		hopeless++
	}
	if hopeless > 0 {
		note(&jobs.Notes, "%d jobs ask for a GPU model or partition that no node has", hopeless)
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
