// SPDX-License-Identifier: Apache-2.0

// Package yamldoc reads YAML that comes from outside: of a bounded length, and without
// aliases, by which a short text can be a huge document. Its errors are one line.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parse reads a text of at most most bytes.
func Parse(raw []byte, most int) (*yaml.Node, error) {
	if len(raw) > most {
		return nil, fmt.Errorf("longer than %d bytes", most)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(raw, &root); err != nil {
		return nil, fmt.Errorf("not YAML: %s", FirstLine(err))
	}
	if hasAlias(&root) {
		return nil, errors.New("aliases are not taken: write it out")
	}
	return &root, nil
}

// mostDocuments bounds a stream of them.
const mostDocuments = 1 << 20

// ParseAll reads all documents of a text of at most most bytes.
func ParseAll(raw []byte, most int) ([]*yaml.Node, error) {
	if len(raw) > most {
		return nil, fmt.Errorf("longer than %d bytes", most)
	}
	var all []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(raw)); len(all) < mostDocuments; {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("not YAML: %s", FirstLine(err))
		}
		if hasAlias(&root) {
			return nil, errors.New("aliases are not taken: write it out")
		}
		all = append(all, &root)
	}
	return nil, fmt.Errorf("more than %d documents", mostDocuments)
}

func hasAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, c := range n.Content {
		if hasAlias(c) {
			return true
		}
	}
	return false
}

const longestLine = 200

// FirstLine is what a decoder complained of first.
func FirstLine(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var typed *yaml.TypeError
	if errors.As(err, &typed) && len(typed.Errors) > 0 {
		text = typed.Errors[0]
	}
	line, _, _ := strings.Cut(text, "\n")
	if len(line) > longestLine {
		line = line[:longestLine] + "..."
	}
	return line
}

// Fields calls each for every field of a mapping, and ends with the first error. One that stands
// there twice is an error. what is the mapping's name in errors.
func Fields(node *yaml.Node, what string, each func(key string, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: %s is not fields with values", node.Line, what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i].Value
		if node.Content[i].Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d: a field of %s has no name", node.Line, what)
		}
		if seen[key] {
			return fmt.Errorf("%s: %q is given twice", what, Short(key))
		}
		seen[key] = true
		if err := each(key, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// Short is the beginning of a text from outside, for an error.
func Short(text string) string {
	const most = 40
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
