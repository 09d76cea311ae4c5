// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// nvmlModule ships the nvml.h that the facts were taken from.
const nvmlModule = "github.com/NVIDIA/go-nvml@v0.13.4-1"

// TestLayoutsEqualNVML compares sizes, offsets and values with nvml.h.
func TestLayoutsEqualNVML(t *testing.T) {
	out, err := exec.Command("go", "mod", "download", "-json", nvmlModule).Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", nvmlModule, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	f, err := readFacts(dataDir, "nvml", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	compared := compareLayouts(t, f, "nvml_abi.h", filepath.Join(module.Dir, "pkg/nvml/nvml.h"))
	if compared < 2800 {
		t.Errorf("only %d facts compared", compared)
	}
}

// TestLayoutsEqualNVCodec compares with the CUDA subset of nv-codec-headers.
func TestLayoutsEqualNVCodec(t *testing.T) {
	const header = "/usr/include/ffnvcodec/dynlink_cuda.h"
	if _, err := os.Stat(header); err != nil {
		t.Skipf("nv-codec-headers are not installed (Debian: libffmpeg-nvenc-dev): %v", err)
	}
	f, err := readFacts(dataDir, "cuda", "cuda-driver")
	if err != nil {
		t.Fatal(err)
	}
	if compared := compareLayouts(t, f, "cuda_abi.h", header); compared < 100 {
		t.Errorf("only %d facts compared", compared)
	}
}

// opaque finds structs that a header may only declare.
var opaque = regexp.MustCompile(`typedef\s+struct\s+(\w+)\s+(\w+)\s*;`)

var comments = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// compareLayouts lets two C programs, each with one of the headers, print what
// both know, and compares line by line.
func compareLayouts(t *testing.T, f *facts, ours, theirs string) int {
	t.Helper()
	text, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	bare := comments.ReplaceAllString(string(text), "")
	for _, word := range wordPattern.FindAllString(bare, -1) {
		known[word] = true
	}
	for _, match := range opaque.FindAllStringSubmatch(bare, -1) {
		if !strings.Contains(bare, "struct "+match[1]+" {") && !strings.Contains(bare, "struct "+match[1]+"\n{") {
			delete(known, match[2])
		}
	}
	var probe strings.Builder
	value := func(expression string) {
		fmt.Fprintf(&probe, "\tprintf(\"%%s %%lld\\n\", \"%s\", (long long)(%s));\n", expression, expression)
	}
	a := newABI(f)
	for _, row := range f.types {
		aggregate := row
		for aggregate.kind == "typedef" && a.byName[aggregate.definition].kind != "" {
			aggregate = a.byName[aggregate.definition]
		}
		if strings.HasPrefix(row.definition, functionPointer) { // theirs may name the function type
			continue
		}
		if !known[row.name] || row.kind != "typedef" && !a.namesItself(row) {
			continue
		}
		value("sizeof(" + row.name + ")")
		if aggregate.kind == "typedef" {
			continue
		}
		fields, err := parseFields(aggregate.definition)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range fields {
			if known[one.name] {
				value("offsetof(" + row.name + ", " + one.name + ")")
			}
		}
	}
	for _, enum := range f.enums {
		for _, one := range f.values[enum] {
			if known[one.name] && !strings.HasPrefix(one.name, "CU_JIT_NUM_") { // counts grow from version to version
				value(one.name)
			}
		}
	}
	for _, one := range f.defines {
		if known[one.name] {
			value(one.name)
		}
	}
	got, want := runProbe(t, ours, "-I"+genDir, probe.String()), runProbe(t, filepath.Base(theirs), "-I"+filepath.Dir(theirs), probe.String())
	if len(got) != len(want) {
		t.Fatalf("%d lines from ours, %d from theirs", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("ours: %s, theirs: %s", got[i], want[i])
		}
	}
	return len(got)
}

func runProbe(t *testing.T, header, include, statements string) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "probe")
	source := fmt.Sprintf("#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include \"%s\"\nint main(void)\n{\n%s\treturn 0;\n}\n", header, statements)
	if err := os.WriteFile(program+".c", []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-std=gnu17", "-w", include, "-o", program, program+".c").CombinedOutput(); err != nil {
		t.Fatalf("gcc with %s: %v\n%.4000s", header, err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
