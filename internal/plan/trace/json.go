// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// document is a JSON list as it is walked through.
type document struct {
	file string
	text []byte
	*json.Decoder
}

// line is where the byte at offset stands.
func (d *document) line(offset int64) int {
	return 1 + bytes.Count(d.text[:min(offset, int64(len(d.text)))], []byte("\n"))
}

// next is the offset of the next token, past white space and separators.
func (d *document) next() int64 {
	i := d.InputOffset()
	for i < int64(len(d.text)) && strings.ContainsRune(" \t\r\n,:", rune(d.text[i])) {
		i++
	}
	return i
}

// wrong explains a failed read that began at offset.
func (d *document) wrong(offset int64, err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &InputError{d.file, d.line(int64(len(d.text))), "the JSON ends too early"}
	case errors.As(err, &syntax):
		// The decoder's own offset counts from places of its choosing.
		var ignored any
		if err := json.Unmarshal(d.text[offset:], &ignored); errors.As(err, &syntax) {
			offset += max(0, syntax.Offset-1)
		}
		return &InputError{d.file, d.line(offset), "not JSON: " + syntax.Error()}
	case errors.As(err, &kind):
		return &InputError{d.file, d.line(offset), fmt.Sprintf("%s is a %s, want %s", kind.Field, kind.Value, kind.Type)}
	}
	return &InputError{d.file, d.line(offset), strings.TrimPrefix(err.Error(), "json: ")}
}

// walkJSON reads an object and hands each element of the arrays named in lists
// to visit. Other keys are passed over; lists that are not there are not missed.
func walkJSON(in *input, lists []string, visit func(d *document, list string) error) error {
	text, err := io.ReadAll(&bounded{in, maxJSONBytes, errTooLarge})
	if err != nil {
		return &InputError{in.file, 0, err.Error()}
	}
	d := &document{file: in.file, text: text, Decoder: json.NewDecoder(bytes.NewReader(text))}
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil {
		return d.wrong(0, err)
	} else if t != json.Delim('{') {
		return &InputError{in.file, d.line(d.InputOffset()), "want an object with " + strings.Join(lists, " or ")}
	}
	found := false
	for d.More() {
		at := d.next()
		key, err := d.Token()
		if err != nil {
			return d.wrong(at, err)
		}
		name := ""
		for _, l := range lists {
			if key == l {
				name = l
			}
		}
		at = d.next()
		if name == "" {
			var ignored json.RawMessage
			if err := d.Decode(&ignored); err != nil {
				return d.wrong(at, err)
			}
			continue
		}
		found = true
		if t, err := d.Token(); err != nil {
			return d.wrong(at, err)
		} else if t != json.Delim('[') {
			return &InputError{in.file, d.line(at), name + " is no array"}
		}
		for n := 0; d.More(); n++ {
			if n == maxRecords {
				return &InputError{in.file, d.line(d.next()), fmt.Sprintf("more than %d records", maxRecords)}
			}
			if err := visit(d, name); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil {
			return d.wrong(d.next(), err)
		}
	}
	if _, err := d.Token(); err != nil {
		return d.wrong(d.next(), err)
	}
	if rest := d.next(); rest < int64(len(text)) {
		return &InputError{in.file, d.line(rest), "more text after the end of the JSON"}
	}
	if !found {
		return &InputError{in.file, 1, "want an object with " + strings.Join(lists, " or ")}
	}
	return nil
}

// element decodes the next element of a list and returns its line.
func element[T any](d *document, into *T) (int, error) {
	at := d.next()
	if err := d.Decode(into); err != nil {
		return 0, d.wrong(at, err)
	}
	return d.line(at), nil
}

// jsonNode is a node in our own shape; docs/placement.md describes it.
type jsonNode struct {
	Name         string `json:"name"`
	Model        string `json:"model"`
	Rack         string `json:"rack"`
	CPUMilli     *int64 `json:"cpuMilli"`
	MemoryMiB    *int64 `json:"memoryMiB"`
	GPUs         *int   `json:"gpus"`
	GPUMemoryMiB int64  `json:"gpuMemoryMiB"`
	Islands      []int  `json:"islands"`
	MIG          string `json:"mig"`
	MIGOnDemand  bool   `json:"migOnDemand"`
}

func (l *Nodes) jsonNode(n *jsonNode) (placement.Node, string) {
	out := placement.Node{Name: n.Name, Model: n.Model, Rack: n.Rack}
	product, reason := l.partitioned(n.MIG)
	switch {
	case n.CPUMilli == nil || n.MemoryMiB == nil || n.GPUs == nil:
		return out, "a node needs cpuMilli, memoryMiB and gpus"
	case *n.GPUs < 0 || *n.GPUs > placement.MaxCards:
		return out, fmt.Sprintf("gpus is %d, want 0 to %d", *n.GPUs, placement.MaxCards)
	case *n.CPUMilli > mostMilli || *n.MemoryMiB > mostMiB || n.GPUMemoryMiB > mostMiB:
		return out, "an amount is too large"
	case len(n.Islands) > 0 && len(n.Islands) != *n.GPUs:
		return out, fmt.Sprintf("islands has %d numbers for %d GPUs", len(n.Islands), *n.GPUs)
	case reason != "":
		return out, "mig: " + reason
	}
	out.CPUMilli, out.MemoryMiB = *n.CPUMilli, *n.MemoryMiB
	for i := range *n.GPUs {
		card := placement.Card{MemoryMiB: n.GPUMemoryMiB, MIG: product, OnDemand: n.MIGOnDemand}
		if len(n.Islands) > 0 {
			card.Island = n.Islands[i]
		}
		out.Cards = append(out.Cards, card)
	}
	return out, ""
}

// jsonJob is a job in our own shape.
type jsonJob struct {
	Name         string   `json:"name"`
	CPUMilli     int64    `json:"cpuMilli"`
	MemoryMiB    int64    `json:"memoryMiB"`
	GPUs         int      `json:"gpus"`
	GPUMilli     int64    `json:"gpuMilli"`
	GPUMemoryMiB int64    `json:"gpuMemoryMiB"`
	Models       []string `json:"models"`
	Linked       bool     `json:"linked"`
	Profile      string   `json:"profile"`
	Tenant       string   `json:"tenant"`
	Priority     int      `json:"priority"`
	Gang         string   `json:"gang"`
	Node         string   `json:"node"`
	Created      *float64 `json:"created"`
	Deleted      *float64 `json:"deleted"`
}

func (j *jsonJob) job(line int) (Job, string) {
	out := Job{Line: line, Gang: j.Gang, Node: j.Node, Request: placement.Request{
		Name: j.Name, CPUMilli: j.CPUMilli, MemoryMiB: j.MemoryMiB, GPUs: j.GPUs, GPUMilli: j.GPUMilli,
		GPUMemoryMiB: j.GPUMemoryMiB, Models: j.Models, Linked: j.Linked, Profile: j.Profile, Tenant: j.Tenant, Priority: j.Priority,
	}}
	switch {
	case j.Name == "":
		return out, "a job needs a name"
	case j.CPUMilli > mostMilli || j.MemoryMiB > mostMiB || j.GPUMemoryMiB > mostMiB:
		return out, "an amount is too large"
	case j.Priority < -mostPriority || j.Priority > mostPriority:
		return out, fmt.Sprintf("priority is %d, want at most %d", j.Priority, mostPriority)
	}
	if j.Created != nil {
		out.Created = *j.Created
	}
	if j.Deleted != nil {
		out.Deleted = *j.Deleted
	}
	if out.Created < 0 || out.Created > secondsForever || out.Deleted < 0 || out.Deleted > secondsForever {
		return out, "a time is out of range"
	}
	out.Timed = j.Created != nil && j.Deleted != nil
	return out, ""
}

// readJSON reads nodes of our own shape, or the Nodes of a kubectl list.
func (l *Nodes) readJSON(in *input) error {
	seen := map[string]int{}
	return walkJSON(in, []string{"nodes", "items"}, func(d *document, list string) error {
		if list == "items" {
			var o kubeObject
			line, err := element(d, &o)
			if err != nil {
				return err
			}
			return l.addKube(&o, line, seen)
		}
		var n jsonNode
		line, err := element(d, &n)
		if err != nil {
			return err
		}
		node, reason := l.jsonNode(&n)
		if reason != "" {
			return &InputError{l.File, line, fmt.Sprintf("node %q: %s", n.Name, reason)}
		}
		return l.add(node, line, seen)
	})
}

// readJSON reads jobs of our own shape, or the Pods of a kubectl list.
func (l *Jobs) readJSON(in *input) error {
	c := newKubePods()
	err := walkJSON(in, []string{"jobs", "items"}, func(d *document, list string) error {
		if list == "items" {
			var o kubeObject
			line, err := element(d, &o)
			if err != nil {
				return err
			}
			return l.addKube(c, &o, line)
		}
		var j jsonJob
		line, err := element(d, &j)
		if err != nil {
			return err
		}
		job, reason := j.job(line)
		if reason != "" {
			return &InputError{l.File, line, fmt.Sprintf("job %q: %s", j.Name, reason)}
		}
		return l.add(job)
	})
	if err != nil {
		return err
	}
	c.conclude(l)
	return nil
}
