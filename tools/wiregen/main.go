// SPDX-License-Identifier: Apache-2.0

// Command wiregen writes the Go views of what is shared with C: internal/wire, the
// pages and messages in clib/include/divvy_wire.h, internal/simgpu/simwire, the
// packets in divvy_sim.h and the headers that it includes, and internal/remote/protocol,
// the frames in divvy_remote.h. It runs in the root of the repository:
//
//	go run ./tools/wiregen
//
// It understands what these headers promise to keep to: #define lines with one
// number, structs of fixed-width fields, one per line, and static assertions on
// sizes and offsets, which it checks against its own layout.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// view is the Go view of some headers.
type view struct {
	header string // in clib/include; those that it includes are read too
	out    string // its folder is the package
	prefix string // of names in the headers, after DIVVY_
	suffix string // of structs that have no name of their own
	names  map[string]string
	words  map[string]string // those of fields that are written otherwise here
	types  map[string]string // of fields, by "struct.field"
}

func views() []view {
	return []view{
		{header: "divvy_wire.h", out: "internal/wire/wire_gen.go", prefix: "WIRE_"},
		{
			header: "divvy_sim.h", out: "internal/simgpu/simwire/simwire_gen.go",
			prefix: "SIM_", suffix: "Info", names: map[string]string{"header": "Header"},
			words: map[string]string{"ns": "NS"}, types: map[string]string{"header.type": "Type", "header.status": "Status"},
		},
		{
			header: "divvy_remote.h", out: "internal/remote/protocol/protocol_gen.go", prefix: "REMOTE_",
			suffix: "Payload", names: map[string]string{"frame": "Frame"}, types: map[string]string{"frame.op": "Op"},
		},
	}
}

func main() {
	for _, v := range views() {
		text, err := v.text(".")
		if err == nil {
			err = os.WriteFile(v.out, text, 0o644)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "wiregen: error: %v\n", err)
			os.Exit(1)
		}
	}
}

// parse reads the view's header, below the root of the repository.
func (v view) parse(root string) (*header, error) {
	h := &header{}
	return h, h.read(filepath.Join(root, "clib/include"), v.header)
}

// read parses a header of a folder, after those of the folder that it includes.
func (h *header) read(folder, name string) error {
	raw, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	for _, m := range included.FindAllStringSubmatch(string(raw), -1) {
		if err := h.read(folder, m[1]); err != nil {
			return err
		}
	}
	if err := h.parse(string(raw)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// text is the source of the view.
func (v view) text(root string) ([]byte, error) {
	h, err := v.parse(root)
	if err != nil {
		return nil, err
	}
	return v.generate(h)
}
