// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// part is a part of a fat binary: what readFat looks at, and so many bytes of code.
func part(kind uint16, target uint32, bytes int) []byte {
	p := make([]byte, partBytes+bytes)
	binary.LittleEndian.PutUint16(p, kind)
	binary.LittleEndian.PutUint32(p[4:], partBytes)
	binary.LittleEndian.PutUint64(p[8:], uint64(bytes))
	binary.LittleEndian.PutUint32(p[28:], target)
	return p
}

func fat(parts ...[]byte) []byte {
	all := bytes.Join(parts, nil)
	head := make([]byte, fatHeader)
	binary.LittleEndian.PutUint32(head, fatMagic)
	binary.LittleEndian.PutUint16(head[4:], 1)
	binary.LittleEndian.PutUint16(head[6:], fatHeader)
	binary.LittleEndian.PutUint64(head[8:], uint64(len(all)))
	return append(head, all...)
}

func TestReadFat(t *testing.T) {
	both := bytes.Join([][]byte{fat(part(kindCode, 86, 32), part(kindPTX, 61, 8)), make([]byte, 8), fat(part(kindPTX, 90, 16), part(kindCode, 75, 0))}, nil)
	for name, c := range map[string]struct {
		section []byte
		want    Code
	}{
		"two with padding between": {both, Code{PTX: []int{61, 90}, Machine: []int{75, 86}}},
		"machine code alone":       {fat(part(kindCode, 89, 64)), Code{Machine: []int{89}}},
		"cut off in the second":    {both[:len(both)-80], Code{PTX: []int{61}, Machine: []int{86}}},
		"none":                     {make([]byte, 64), Code{}},
		"a part without a length":  {fat(make([]byte, partBytes)), Code{}},
	} {
		if got := readFat(bytes.NewReader(c.section), int64(len(c.section))); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func FuzzReadFat(f *testing.F) {
	f.Add(fat(part(kindCode, 86, 32), part(kindPTX, 61, 8)))
	f.Fuzz(func(t *testing.T, section []byte) {
		code := readFat(bytes.NewReader(section), int64(len(section)))
		if len(code.PTX)+len(code.Machine) > len(section)/partBytes {
			t.Errorf("%+v of %d bytes", code, len(section))
		}
	})
}

func TestSimulated(t *testing.T) {
	for _, c := range []struct {
		found Found
		want  Verdict
		says  string
	}{
		{Found{Runtime: "libcudart.so.12"}, Not, "libcudart.so.12"},
		{Found{Runtime: "inside", Code: Code{PTX: []int{80}}}, Not, "inside"},
		{Found{Code: Code{Machine: []int{86, 89}}}, Not, "sm_86, sm_89 and no PTX"},
		{Found{Code: Code{Machine: []int{86}, PTX: []int{75}}}, Runs, "sm_75"},
		{Found{}, Perhaps, "decides"},
	} {
		if got, why := c.found.Simulated(); got != c.want || !strings.Contains(why, c.says) {
			t.Errorf("%+v: %s, %s", c.found, got, why)
		}
	}
}

func TestRead(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, want := range map[string]string{
		"#!/usr/bin/env python3\nimport this\n": "python3",
		"#! /opt/v/bin/python\n":                "/opt/v/bin/python",
		"#!/usr/bin/env -S A=b python3 -u\n":    "python3",
		"#!/usr/bin/env\n":                      "/usr/bin/env",
		"#!\n":                                  "",
		"echo\n":                                "",
		"":                                      "",
	} {
		if found, err := Read(write("script", text), ""); err != nil || found.Interpreter != want {
			t.Errorf("%q: %+v, %v", text, found, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	found, err := Read(self, "")
	if err != nil || len(found.Code.PTX) != 0 || found.Runtime != "" {
		t.Errorf("what looks for the runtime has it inside: %+v, %v", found, err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	with := write("with", string(text)+string(inside[0])+"\x00"+string(inside[1]))
	if found, err := Read(with, ""); err != nil || found.Runtime != "inside" {
		t.Errorf("what has it inside: %+v, %v", found, err)
	}
	if _, err := Read(folder, ""); err == nil {
		t.Error("a folder is a program")
	}
}

// Words are found across the pieces in which a file is read.
func TestContains(t *testing.T) {
	for at := chunkBytes - 20; at < chunkBytes+20; at++ {
		text := make([]byte, at+200)
		copy(text, inside[1])
		copy(text[at:], inside[0])
		if all, err := contains(bytes.NewReader(text), inside); err != nil || !all {
			t.Fatalf("at %d: %v, %v", at, all, err)
		}
	}
	if all, _ := contains(bytes.NewReader(inside[0]), inside); all {
		t.Error("one is both")
	}
}

func TestReadPython(t *testing.T) {
	folder := t.TempDir()
	install := func(name string) {
		if err := os.MkdirAll(filepath.Join(folder, "lib", "python3.11", "site-packages", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := ReadPython(folder); ok || err != nil {
		t.Errorf("an empty folder: %v, %v", ok, err)
	}
	install("torch-2.9.0.dist-info")
	install("torch")
	install("numba_cuda-0.30.4.dist-info")
	packages, ok, err := ReadPython(folder)
	if err != nil || !ok || len(packages) != 2 || packages[0].Name != "numba-cuda" || packages[0].Simulated != Runs ||
		packages[1].Version != "2.9.0" || packages[1].Simulated != Not {
		t.Errorf("%+v, %v, %v", packages, ok, err)
	}
	if err := os.Symlink("lib", filepath.Join(folder, "lib64")); err != nil {
		t.Fatal(err)
	}
	install("tensorflow-2.20.0+cpu.dist-info")
	if again, _, _ := ReadPython(folder); !slices.Equal(again, packages) {
		t.Errorf("a link, and a package for CPUs: %+v", again)
	}
	install("nvidia_nvjitlink_cu12-12.9.86.dist-info")
	if packages, _, _ = ReadPython(folder); packages[0].Simulated != Not || !strings.Contains(packages[0].Why, "nvjitlink") {
		t.Errorf("%+v", packages)
	}
}
