// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// document is a JSON list as it is walked through.
type document struct {
	file string
	text []byte
	*json.Decoder

	counted  int64 // bytes, for line
	newlines int   // in those
}

// line is where the byte at offset stands: after what was asked about before, as a rule.
func (d *document) line(offset int64) int {
	if offset = min(offset, int64(len(d.text))); offset < d.counted {
		d.counted, d.newlines = 0, 0
	}
	d.newlines += bytes.Count(d.text[d.counted:offset], []byte("\n"))
	d.counted = offset
	return 1 + d.newlines
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
		return &InputError{d.file, d.line(offset), fmt.Sprintf("%s is a %s, want %s", kind.Field, kind.Value, shape(kind.Type))}
	}
	return &InputError{d.file, d.line(offset), strings.TrimPrefix(err.Error(), "json: ")}
}

// shape is what JSON calls what a Go type is read from.
func shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "a number"
}

// visitor takes what stands in a list.
type visitor struct {
	own     string                              // the list of our own shape
	element func(d *document) error             // of that
	object  func(o *kubeObject, line int) error // of a cluster's list, whatever its kind
	watched watched
	objects int // so far
	parts   int // in those
}

func (v *visitor) wanted() string { return "want an object with " + v.own + " or items" }

// walkJSON reads a list of our own shape, or what kubectl prints: a list, one object, or
// several of them one after the other or in an array.
func walkJSON(in *input, v *visitor) error {
	text, err := io.ReadAll(&bounded{in, maxJSONBytes, errTooLarge})
	if err != nil {
		return &InputError{in.file, 0, err.Error()}
	}
	d := &document{file: in.file, text: text, Decoder: json.NewDecoder(bytes.NewReader(text))}
	for first := true; ; first = false {
		at := d.next()
		if at >= int64(len(text)) && !first {
			return v.watched.settle(v.object)
		}
		cluster, err := d.walk(v)
		if err != nil {
			return err
		}
		if rest := d.next(); rest < int64(len(text)) && !cluster {
			return &InputError{in.file, d.line(rest), "more text after the end of the JSON"}
		}
	}
}

// walk reads one value and says whether it is a cluster's.
func (d *document) walk(v *visitor) (cluster bool, err error) {
	start := d.next()
	t, err := d.Token()
	switch {
	case err != nil:
		return false, d.wrong(start, err)
	case t == json.Delim('['):
		return true, d.array(v, "")
	case t != json.Delim('{'):
		return false, &InputError{d.file, d.line(start), v.wanted()}
	}
	found, event, kind := false, false, ""
	for d.More() {
		at := d.next()
		key, err := d.Token()
		if err != nil {
			return false, d.wrong(at, err)
		}
		at = d.next()
		switch key {
		case v.own:
			found = true
			if err := d.list(v.own, v.element); err != nil {
				return false, err
			}
		case "items":
			found, cluster = true, true
			if err := d.list("items", func(d *document) error { return d.object(v, kind) }); err != nil {
				return false, err
			}
		default:
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				return false, d.wrong(at, err)
			}
			switch key {
			case "kind":
				kind, _ = strconv.Unquote(string(value))
			case "object":
				event = true
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return false, d.wrong(d.next(), err)
	}
	if found {
		return cluster, nil
	}
	if kind == refusal {
		return false, &InputError{d.file, d.line(start), answered(d.text[start:d.InputOffset()])}
	}
	if kind == "" && !event {
		return false, &errNone{&InputError{d.file, d.line(start), v.wanted()}, nil}
	}
	if d.InputOffset()-start > maxObjectBytes {
		return false, tooLarge(d.file, d.line(start))
	}
	if err := v.count(d, start, d.text[start:d.InputOffset()]); err != nil {
		return false, err
	}
	var o kubeObject
	if err := json.Unmarshal(d.text[start:d.InputOffset()], &o); err != nil {
		return false, d.wrong(start, err)
	}
	if kind == "" && !o.isEvent() {
		return false, &errNone{&InputError{d.file, d.line(start), v.wanted()}, nil}
	}
	return true, v.take(d.file, &o, d.line(start), "", 0)
}

// refusal is the kind of what a cluster answers instead of a list.
const refusal = "Status"

func answered(text []byte) string {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &said) // it may have said nothing
	return answer(said.Message)
}

func answer(message string) string { return "no list: the cluster answered " + strconv.Quote(message) }

// list hands each element of an array to visit.
func (d *document) list(name string, visit func(*document) error) error {
	at := d.next()
	if t, err := d.Token(); err != nil {
		return d.wrong(at, err)
	} else if t == nil {
		return nil // null, as of an empty list
	} else if t != json.Delim('[') {
		return &InputError{d.file, d.line(at), name + " is no array"}
	}
	for n := 0; d.More(); n++ {
		if n == maxRecords {
			return &InputError{d.file, d.line(d.next()), fmt.Sprintf("more than %d records", maxRecords)}
		}
		if err := visit(d); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return d.wrong(d.next(), err)
	}
	return nil
}

// array is the rest of an array of a cluster's objects that has begun.
func (d *document) array(v *visitor, kind string) error {
	for n := 0; d.More(); n++ {
		at := d.next()
		if n == maxRecords {
			return &InputError{d.file, d.line(at), fmt.Sprintf("more than %d records", maxRecords)}
		}
		if at < int64(len(d.text)) && d.text[at] != '{' {
			return &InputError{d.file, d.line(at), v.wanted()}
		}
		if err := d.object(v, kind); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return d.wrong(d.next(), err)
	}
	return nil
}

// object is the next element of a cluster's list of a kind.
func (d *document) object(v *visitor, kind string) error {
	at := d.next()
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return d.wrong(at, err)
	}
	if err := v.count(d, at, raw); err != nil {
		return err
	}
	return v.read(d.file, raw, d.line(at), strings.TrimSuffix(kind, "List"), 0)
}

// count adds to what there is in a cluster's objects: one of few bytes may take a hundred times as many.
func (v *visitor) count(d *document, at int64, raw []byte) error {
	if v.parts += bytes.Count(raw, []byte(",")) + bytes.Count(raw, []byte("{")); v.parts > maxParts {
		return &InputError{d.file, d.line(at), fmt.Sprintf("more than %d fields and elements of objects", maxParts)}
	}
	return nil
}

// read hands on an object in a list, which is so deep in others.
func (v *visitor) read(file string, raw []byte, line int, kind string, depth int) error {
	var o kubeObject
	var err error
	if len(raw) <= maxObjectBytes {
		err = json.Unmarshal(raw, &o)
	} else {
		var list struct {
			Kind  string          `json:"kind"`
			Items json.RawMessage `json:"items"`
		}
		err = json.Unmarshal(raw, &list)
		if o.Kind, o.Items = list.Kind, list.Items; err == nil && len(raw)-len(o.Items) > maxObjectBytes {
			return tooLarge(file, line)
		}
	}
	if err != nil {
		return misread(file, line, err)
	}
	return v.take(file, &o, line, kind, depth)
}

// misread explains a failed read of what begins in a line.
func misread(file string, line int, err error) error {
	d := document{file: file, text: bytes.Repeat([]byte("\n"), line-1)}
	return d.wrong(int64(line-1), err)
}

func tooLarge(file string, line int) error {
	return &InputError{file, line, fmt.Sprintf("an object of more than %d MiB", maxObjectBytes>>20)}
}

// take hands an object on, or what is in it if it is a list. The interface behind kubectl
// leaves the kind of a list's elements out.
func (v *visitor) take(file string, o *kubeObject, line int, kind string, depth int) error {
	if v.objects++; v.objects > maxObjects {
		return &InputError{file, line, fmt.Sprintf("more than %d objects", maxObjects)}
	}
	if o.isEvent() {
		if wrong := v.watched.take(o, line); wrong != "" {
			return &InputError{file, line, wrong}
		}
		return nil
	}
	items, err := o.items()
	if err != nil {
		return misread(file, line, err)
	}
	if o.Kind == "" {
		o.Kind = kind
	}
	if o.Kind == "" || o.Kind == "List" && items == nil {
		o.Kind = o.looksLike()
	}
	if items == nil {
		return v.object(o, line)
	}
	if depth == maxLists {
		return &InputError{file, line, fmt.Sprintf("more than %d lists in each other", maxLists)}
	}
	for items.More() {
		var raw json.RawMessage
		if err := items.Decode(&raw); err != nil {
			return misread(file, line, err)
		}
		if err := v.read(file, raw, line, strings.TrimSuffix(o.Kind, "List"), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// items reads the elements of a list that has some; nil: it is none.
func (o *kubeObject) items() (*json.Decoder, error) {
	if len(o.Items) == 0 || string(o.Items) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(o.Items))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.Join(err, errors.New("items is no array"))
	}
	if !d.More() {
		return nil, nil
	}
	return d, nil
}

// looksLike tells the kind of an object that does not say it.
func (o *kubeObject) looksLike() string {
	switch {
	case len(o.Spec.Containers) > 0:
		return "Pod"
	case len(o.Status.Allocatable) > 0:
		return "Node"
	}
	return o.Kind
}

// element decodes the next element of a list and returns its line.
func element[T any](d *document, into *T) (int, error) {
	at := d.next()
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return 0, d.wrong(at, err)
	}
	if len(raw) > maxObjectBytes {
		return 0, tooLarge(d.file, d.line(at))
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil {
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

// readJSON reads nodes of our own shape, or the Nodes of a cluster.
func (l *Nodes) readJSON(in *input) error { return walkJSON(in, l.visitor()) }

func (l *Nodes) visitor() *visitor {
	seen := map[string]int{}
	kinds := map[string]bool{}
	return &visitor{own: "nodes", element: func(d *document) error {
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
	}, object: func(o *kubeObject, line int) error {
		switch o.Kind {
		case "Node", "Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass":
		default:
			if !kinds[o.Kind] && len(kinds) < mostKinds {
				kinds[o.Kind] = true
				note(&l.Notes, "%s: %ss in the list have no bearing on a plan", l.File, o.Kind)
			}
		}
		return l.addKube(o, line, seen)
	}}
}

// readJSON reads jobs of our own shape, or the Pods of a cluster.
func (l *Jobs) readJSON(in *input) error { return l.read(in, walkJSON) }

func (l *Jobs) read(in *input, walk func(*input, *visitor) error) error {
	c := newKubePods()
	err := walk(in, &visitor{own: "jobs", element: func(d *document) error {
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
	}, object: func(o *kubeObject, line int) error {
		c.take(o, line)
		return nil
	}})
	if err != nil {
		return err
	}
	return c.conclude(l)
}
