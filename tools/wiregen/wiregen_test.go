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

const root = "../.."

func TestOutputIsCurrent(t *testing.T) {
	for _, v := range views() {
		want, err := os.ReadFile(filepath.Join(root, v.out))
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.text(root)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the headers say; run: make generate", v.out)
		}
	}
}

// The C compiler agrees with every number, size and offset that we computed.
func TestLayoutIsTheCompilers(t *testing.T) {
	for _, v := range views() {
		parsed, err := v.parse(root)
		if err != nil {
			t.Fatal(err)
		}
		var program strings.Builder
		fmt.Fprintf(&program, "#include <stddef.h>\n#include \"%s\"\n", v.header)
		for _, c := range parsed.constants {
			fmt.Fprintf(&program, "_Static_assert(DIVVY_%s == %du, \"%s\");\n", c.name, c.value, c.name)
		}
		for _, s := range parsed.structs {
			fmt.Fprintf(&program, "_Static_assert(sizeof(struct divvy_%s) == %d, \"%s\");\n", s.name, s.size, s.name)
			for _, f := range s.fields {
				fmt.Fprintf(&program, "_Static_assert(offsetof(struct divvy_%s, %s) == %d, \"%s.%s\");\n", s.name, f.name, f.offset, s.name, f.name)
			}
		}
		command := exec.Command("gcc", "-std=gnu17", "-fsyntax-only", "-I", filepath.Join(root, "clib/include"), "-x", "c", "-")
		command.Stdin = strings.NewReader(program.String())
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("gcc: %v\n%s", err, out)
		}
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
		if err := new(header).parse(text); err == nil {
			t.Errorf("%s: accepted %q", name, text)
		}
	}
}

// Whatever stands in the header, it is refused or understood the same way twice.
func FuzzParse(f *testing.F) {
	for _, v := range views() {
		text, err := os.ReadFile(filepath.Join(root, "clib/include", v.header))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("#define DIVVY_X 1\nstruct divvy_y {\n\tuint32_t z[DIVVY_X];\n};\n")
	f.Fuzz(func(t *testing.T, text string) {
		once, again := &header{}, &header{}
		err, errAgain := once.parse(text), again.parse(text)
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
