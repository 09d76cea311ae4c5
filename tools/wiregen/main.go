// SPDX-License-Identifier: Apache-2.0

// Command wiregen writes internal/wire/wire_gen.go, the Go view of the pages
// and messages in clib/include/divvy_wire.h. It runs in the root of the
// repository:
//
//	go run ./tools/wiregen
//
// It understands what that header promises to keep to: #define lines with one
// number, structs of fixed-width fields, one per line, and static assertions on
// sizes and offsets, which it checks against its own layout.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	header := flag.String("header", "clib/include/divvy_wire.h", "header to read")
	out := flag.String("out", "internal/wire/wire_gen.go", "file to write")
	flag.Parse()
	if err := run(*header, *out); err != nil {
		fmt.Fprintf(os.Stderr, "wiregen: error: %v\n", err)
		os.Exit(1)
	}
}

func run(header, out string) error {
	raw, err := os.ReadFile(header)
	if err != nil {
		return err
	}
	parsed, err := parse(string(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", header, err)
	}
	text, err := generate(parsed)
	if err != nil {
		return err
	}
	return os.WriteFile(out, text, 0o644)
}
