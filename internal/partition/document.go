// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is a field of a card in documents.
type Field struct {
	Name  string
	Value any // a pointer
	Omit  bool
}

// flat is a Division with several fields of a card in documents; others have one,
// their technique's.
type flat interface{ Fields() []Field }

func fieldsOf(field string, d Division) []Field {
	if f, ok := d.(flat); ok {
		return f.Fields()
	}
	return []Field{{Name: field, Value: d}}
}

// later is a value of a document that is read when it is known into what.
type later struct{ read func(any) error }

// UnmarshalYAML keeps the reader, which refuses unknown fields as the document's does.
func (l *later) UnmarshalYAML(read func(any) error) error {
	l.read = read
	return nil
}

// fields are those of a card or a rule that techniques have.
type fields map[string]later

// String lists their names.
func (f fields) String() string { return strings.Join(slices.Sorted(maps.Keys(f)), ", ") }

// take reads a field into a value, and says whether it is there.
func (f fields) take(name string, into any) (bool, error) {
	l, ok := f[name]
	if !ok || l.read == nil { // null
		delete(f, name)
		return false, nil
	}
	delete(f, name)
	return true, l.read(into)
}

// ParseState reads a state, in YAML or JSON.
func (all Techniques) ParseState(raw []byte) (State, error) {
	var file struct {
		Schema string `yaml:"schema"`
		Cards  []struct {
			Card   `yaml:",inline"`
			Fields fields `yaml:",inline"`
		} `yaml:"cards"`
	}
	err := Decode(raw, &file)
	s := State{Schema: file.Schema}
	for _, c := range file.Cards {
		if err == nil {
			err = all.divide(&c.Card, func(f Field) (bool, error) { return c.Fields.take(f.Name, f.Value) })
		}
		if err == nil && len(c.Fields) > 0 {
			err = fmt.Errorf("GPU %s has fields that no technique knows: %s", c.UUID, c.Fields)
		}
		s.Cards = append(s.Cards, c.Card)
	}
	if err != nil {
		return s, fmt.Errorf("read the state: %w", err)
	}
	return s, s.Validate()
}

// divide reads how a card is divided, field by field.
func (all Techniques) divide(c *Card, take func(f Field) (bool, error)) error {
	for _, t := range all {
		d := t.About().Division()
		_, there := d.(flat) // its absent fields say something too
		for _, f := range fieldsOf(fieldOf(t.Name()), d) {
			found, err := take(f)
			if err != nil {
				return err
			}
			there = there || found
		}
		if there {
			*c = c.With(t.Name(), d)
		}
	}
	return nil
}

func fieldOf(technique string) string {
	for _, known := range inOrder {
		if known.name == technique {
			return known.field
		}
	}
	return technique
}

// MarshalJSON writes a card with a field a technique.
func (c Card) MarshalJSON() ([]byte, error) {
	type plain Card
	raw, err := json.Marshal(plain(c))
	c.each(func(name string, d Division) {
		for _, f := range fieldsOf(fieldOf(name), d) {
			if err == nil && !f.Omit {
				raw, err = Append(raw, f.Name, f.Value)
			}
		}
	})
	return raw, err
}

// Append adds a field to an object of JSON that has others.
func Append(object []byte, name string, value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	return fmt.Appendf(bytes.TrimSuffix(object, []byte("}")), ",%q:%s}", name, raw), err
}

// UnmarshalJSON reads a card that MarshalJSON has written, but for how it is divided.
func (c *Card) UnmarshalJSON(raw []byte) error {
	type plain Card
	if err := json.Unmarshal(raw, (*plain)(c)); err != nil {
		return err
	}
	return json.Unmarshal(raw, &c.unread)
}

// Decode reads one YAML or JSON document and refuses unknown fields.
func Decode(raw []byte, into any) error {
	if len(raw) > MaxDocument {
		return fmt.Errorf("longer than %d bytes", MaxDocument)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(NoTabs(raw)))
	decoder.KnownFields(true)
	return decoder.Decode(into)
}

// NoTabs makes JSON YAML, which it is but for tabs between its tokens; within strings
// it has none.
func NoTabs(raw []byte) []byte {
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return bytes.ReplaceAll(raw, []byte("\t"), []byte(" "))
	}
	return raw
}
