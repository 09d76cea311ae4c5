// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Fact is something that a driver tells or does not tell. The zero Fact is
// unknown; it is null in JSON.
type Fact[T any] struct {
	Value T
	Known bool
}

// Known is a fact that was told.
func Known[T any](value T) Fact[T] { return Fact[T]{Value: value, Known: true} }

// Or returns the value, or what stands in for it when it is unknown.
func (f Fact[T]) Or(unknown T) T {
	if f.Known {
		return f.Value
	}
	return unknown
}

// String shows the value, or the word "unknown".
func (f Fact[T]) String() string {
	if !f.Known {
		return "unknown"
	}
	return fmt.Sprint(f.Value)
}

// MarshalJSON writes null for what is unknown.
func (f Fact[T]) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	return json.Marshal(f.Value)
}

// UnmarshalJSON reads null as unknown.
func (f *Fact[T]) UnmarshalJSON(raw []byte) error {
	*f = Fact[T]{}
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, &f.Value); err != nil {
		return err
	}
	f.Known = true
	return nil
}
