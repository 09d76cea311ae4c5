// SPDX-License-Identifier: Apache-2.0

package descriptor

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestBuiltInsAreValid(t *testing.T) {
	all, err := BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range all {
		if names[d.Name] || len(d.Sources) == 0 || d.Resource == "" {
			t.Errorf("%s: twice, or without sources or resource name", d.Name)
		}
		names[d.Name] = true
	}
	for _, name := range []string{"mthreads", "hygon", "iluvatar", "biren"} {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestOwnReplacesBuiltIn(t *testing.T) {
	builtIn, err := BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	own, err := Load(fstest.MapFS{
		"a.yaml":     {Data: []byte("name: biren\nvendor: Own\npci: {vendor: \"0x1ee1\"}\n")},
		"b.yaml":     {Data: []byte("name: newvendor\nvendor: New\npci: {vendor: \"0x1234\"}\n")},
		"readme.txt": {Data: []byte("not read")},
	})
	if err != nil || len(own) != 2 {
		t.Fatalf("%v, %v", own, err)
	}
	merged := Merge(builtIn, own)
	if len(merged) != len(builtIn)+1 || merged[len(merged)-1].Name != "newvendor" {
		t.Errorf("%d descriptors of %d", len(merged), len(builtIn))
	}
	if none, err := Load(fstest.MapFS{}); err != nil || none != nil {
		t.Errorf("an empty folder: %v, %v", none, err)
	}
}

func TestWrongDescriptors(t *testing.T) {
	const valid = "name: x\nvendor: X\npci: {vendor: \"0x1234\"}\n"
	if _, err := Parse([]byte(valid)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.Replace(valid, "name: x", "name: Ex", 1):  "lower-case",
		strings.Replace(valid, "name: x", "name: amd", 1): "reader of its own",
		strings.Replace(valid, "0x1234", "1234", 1):       "not an id",
		valid + "colour: red\n":                           "colour",
		valid + "nodes: [\"/etc/passwd\"]\n":              "not under /dev",
		valid + "nodes: [\"/dev/../etc/passwd\"]\n":       "not under /dev",
		"": "EOF",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("name: x\nvendor: X\npci: {vendor: \"0x1234\", only: true, devices: {\"0x0001\": One}}\nnodes: [\"/dev/x{index}\"]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := Parse(raw)
		if err == nil && d.Validate() != nil {
			t.Errorf("accepted %+v", d)
		}
	})
}
