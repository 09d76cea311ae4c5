// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const (
	headerFile = "../../clib/include/divvy_wire.h"
	outputFile = "../../internal/wire/wire_gen.go"
)

func TestOutputIsCurrent(t *testing.T) {
	want, err := os.ReadFile(outputFile)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "wire_gen.go")
	if err := run(headerFile, out); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("internal/wire/wire_gen.go is not what the header says; run: make generate")
	}
}

// The C compiler agrees with every size and offset that we computed.
func TestLayoutIsTheCompilers(t *testing.T) {
	raw, err := os.ReadFile(headerFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	var program strings.Builder
	program.WriteString("#include \"divvy_wire.h\"\n")
	for _, s := range parsed.structs {
		fmt.Fprintf(&program, "_Static_assert(sizeof(struct divvy_%s) == %d, \"%s\");\n", s.name, s.size, s.name)
		for _, f := range s.fields {
			fmt.Fprintf(&program, "_Static_assert(offsetof(struct divvy_%s, %s) == %d, \"%s.%s\");\n", s.name, f.name, f.offset, s.name, f.name)
		}
	}
	command := exec.Command("gcc", "-std=gnu17", "-fsyntax-only", "-I", filepath.Dir(headerFile), "-x", "c", "-")
	command.Stdin = strings.NewReader(program.String())
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("gcc: %v\n%s", err, out)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"padding":         "struct divvy_a {\n\tuint32_t a;\n\tuint64_t b;\n};",
		"system type":     "struct divvy_a {\n\tsize_t a;\n};",
		"underscore":      "struct divvy_a {\n\tuint32_t a_b;\n};",
		"two fields":      "struct divvy_a {\n\tuint32_t a, b;\n};",
		"system macro":    "struct divvy_a {\n\tuint32_t a[PATH_MAX];\n};",
		"expression":      "#define DIVVY_A (1u << 3)",
		"wrong size":      "struct divvy_a {\n\tuint32_t a;\n};\n_Static_assert(sizeof(struct divvy_a) == 8, \"a\");",
		"wrong offset":    "struct divvy_a {\n\tuint32_t a;\n};\n_Static_assert(offsetof(struct divvy_a, a) == 4, \"a\");",
		"unknown":         "typedef int divvy_int;",
		"unfinished":      "struct divvy_a {\n\tuint32_t a;\n",
		"unknown element": "struct divvy_a {\n\tstruct divvy_b b;\n};",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s: accepted %q", name, text)
		}
	}
}

// Whatever stands in the header, it is refused or understood the same way twice.
func FuzzParse(f *testing.F) {
	text, err := os.ReadFile(headerFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("#define DIVVY_X 1\nstruct divvy_y {\n\tuint32_t z[DIVVY_X];\n};\n")
	f.Fuzz(func(t *testing.T, text string) {
		once, err := parse(text)
		again, errAgain := parse(text)
		if (err == nil) != (errAgain == nil) || !reflect.DeepEqual(once, again) {
			t.Errorf("%v, then %v", err, errAgain)
		}
		if err != nil {
			return
		}
		for _, s := range once.structs {
			end := 0
			for _, field := range s.fields {
				if field.offset < end {
					t.Errorf("%s.%s at %d lies in the field before it, which ends at %d", s.name, field.name, field.offset, end)
				}
				end = field.offset + field.size
			}
			if end > s.size {
				t.Errorf("%s: fields end at %d of %d", s.name, end, s.size)
			}
		}
	})
}
