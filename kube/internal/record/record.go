// SPDX-License-Identifier: Apache-2.0

// Package record is what a scheduler decided for a pod's containers: the annotation that
// the binding of a pod carries, and that the node reads. It is pure.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

const (
	// MaxBytes of an annotation's text.
	MaxBytes = 32 << 10
	mib      = 1 << 20
)

// Record says what the containers of one pod have on one node.
type Record struct {
	APIVersion string           `json:"apiVersion"`
	Node       string           `json:"node"`
	Pod        string           `json:"pod"` // UID: that of another pod is worth nothing
	Containers map[string]Share `json:"containers"`
}

// Share is what one container has: that much of each of its GPUs, or all of them.
type Share struct {
	GPUs        []string          `json:"gpus"` // UUIDs
	MemoryBytes uint64            `json:"memoryBytes,omitempty"`
	Cores       int               `json:"cores,omitempty"`
	Policy      share.Policy      `json:"policy,omitempty"`
	Weight      int               `json:"weight,omitempty"`
	Priority    int               `json:"priority,omitempty"`
	Enforce     share.Enforcement `json:"enforce,omitempty"`
	Exclusive   bool              `json:"exclusive,omitempty"`
}

// Encode returns the annotation's text.
func (r Record) Encode() (string, error) {
	r.APIVersion = names.ParametersAPIVersion
	raw, err := json.Marshal(r)
	if err == nil && len(raw) > MaxBytes {
		err = fmt.Errorf("a record of %d bytes: %d are the most", len(raw), MaxBytes)
	}
	return string(raw), err
}

// Decode reads a record that must be of this node and pod.
func Decode(text, node, pod string) (Record, error) {
	var r Record
	switch {
	case text == "":
		return r, fmt.Errorf("the pod has no %s: it was not scheduled by Divvy's scheduler", names.AnnotationAllocation)
	case len(text) > MaxBytes:
		return r, fmt.Errorf("%s has %d bytes: %d are the most", names.AnnotationAllocation, len(text), MaxBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("%s: %w", names.AnnotationAllocation, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("%s: more than one document", names.AnnotationAllocation)
	}
	switch {
	case r.APIVersion != names.ParametersAPIVersion:
		return Record{}, fmt.Errorf("%s: apiVersion %q, want %q", names.AnnotationAllocation, r.APIVersion, names.ParametersAPIVersion)
	case r.Node != node:
		return Record{}, fmt.Errorf("%s is of node %q, and this is %q", names.AnnotationAllocation, r.Node, node)
	case r.Pod != pod:
		return Record{}, fmt.Errorf("%s is of the pod with UID %q, and this one's is %q", names.AnnotationAllocation, r.Pod, pod)
	}
	return r, nil
}

// Of is what a container has, when that can be for so many GPUs.
func (r Record) Of(container string, gpus int) (Share, error) {
	s, ok := r.Containers[container]
	if !ok {
		return Share{}, fmt.Errorf("%s says nothing of container %s", names.AnnotationAllocation, container)
	}
	seen := map[string]bool{}
	for _, uuid := range s.GPUs {
		if _, ok := names.UUID(names.Device(uuid)); !ok || seen[uuid] {
			return Share{}, fmt.Errorf("%s: container %s: %.80q is no GPU's UUID, or is there twice", names.AnnotationAllocation, container, uuid)
		}
		seen[uuid] = true
	}
	switch {
	case len(s.GPUs) != gpus:
		return Share{}, fmt.Errorf("%s gives container %s %d GPUs, and its limit of %s is %d", names.AnnotationAllocation, container, len(s.GPUs), names.ResourceGPU, gpus)
	case s.MemoryBytes%mib != 0:
		return Share{}, fmt.Errorf("%s: container %s: %d bytes of memory are no whole MiB", names.AnnotationAllocation, container, s.MemoryBytes)
	case s.Cores < 0 || s.Cores > 100:
		return Share{}, fmt.Errorf("%s: container %s: %d cores: a share has 1 to 100 percent, or 0 for what others leave", names.AnnotationAllocation, container, s.Cores)
	case s.Exclusive && (s.MemoryBytes != 0 || s.Cores != 0):
		return Share{}, fmt.Errorf("%s: container %s: whole GPUs have all memory and cores", names.AnnotationAllocation, container)
	}
	return s, nil
}
