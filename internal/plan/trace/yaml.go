// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// Bounds of what is read of YAML, whose reader takes some 200 bytes for each of its parts.
const (
	maxYAMLBytes   = 64 << 20
	maxYAMLMarks   = 6_000_000 // of which each begins one part, or a pair: 11 bytes each in the longest text
	maxObjectParts = 1 << 18
)

// walkYAML reads what kubectl prints as YAML: documents that are lists or objects.
func walkYAML(in *input, v *visitor) error {
	text, err := io.ReadAll(&bounded{in, maxYAMLBytes, errYAMLTooLarge})
	if err != nil {
		return &InputError{in.file, 0, err.Error()}
	}
	if marks(text) > maxYAMLMarks {
		return &InputError{in.file, 0, errYAMLTooLarge.Error()}
	}
	documents, err := yamldoc.ParseAll(text, maxYAMLBytes)
	if err != nil {
		return &InputError{in.file, 0, err.Error()}
	}
	for _, d := range documents {
		if len(d.Content) == 0 || d.Content[0].Kind == yaml.ScalarNode && d.Content[0].Tag == "!!null" {
			continue
		}
		if err := walkNode(in.file, d.Content[0], v, ""); err != nil {
			return err
		}
	}
	return v.watched.settle(v.object)
}

// marks counts what begins parts of a text, before it is read.
func marks(text []byte) (n int) {
	for _, mark := range []string{"\n", ",", ":", "[", "{", "- ", "? "} {
		n += bytes.Count(text, []byte(mark))
	}
	return n
}

// parts counts those of an object.
func parts(n *yaml.Node) int {
	sum := 1
	for _, c := range n.Content {
		sum += parts(c)
	}
	return sum
}

// walkNode reads an object, the elements of a list one by one.
func walkNode(file string, n *yaml.Node, v *visitor, kind string) error {
	if n.Kind == yaml.SequenceNode {
		for _, element := range n.Content {
			if err := walkNode(file, element, v, kind); err != nil {
				return err
			}
		}
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return &InputError{file, n.Line, v.wanted()}
	}
	var items *yaml.Node
	own, event := "", false
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "items":
			items = n.Content[i+1]
		case "kind":
			own = n.Content[i+1].Value
		case "object":
			event = true
		}
	}
	if items != nil && items.Kind == yaml.SequenceNode {
		return walkNode(file, items, v, strings.TrimSuffix(own, "List"))
	}
	if own == "" && kind == "" && !event {
		return &InputError{file, n.Line, v.wanted()}
	}
	if parts(n) > maxObjectParts {
		return &InputError{file, n.Line, fmt.Sprintf("an object of more than %d parts", maxObjectParts)}
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return &InputError{file, n.Line, "not YAML: " + yamldoc.FirstLine(err)}
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return &InputError{file, n.Line, fmt.Sprintf("%s is no object", own)}
	}
	if own == refusal {
		return &InputError{file, n.Line, answered(raw)}
	}
	var o kubeObject
	if err := json.Unmarshal(raw, &o); err != nil {
		return misread(file, n.Line, err)
	}
	if own == "" && kind == "" && !o.isEvent() {
		return &InputError{file, n.Line, v.wanted()}
	}
	return v.take(file, &o, n.Line, kind, 0)
}
