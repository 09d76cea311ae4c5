// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"reflect"
	"strings"
	"testing"
)

func TestCreatableTypes(t *testing.T) {
	got := CreatableTypes("ID    : vGPU Name\n1428 : NVIDIA H200X-141C\n1414 : NVIDIA H200X-1-18C\n\n: x\n7 :\n")
	want := []Type{{"1428", "NVIDIA H200X-141C"}, {"1414", "NVIDIA H200X-1-18C"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestVersion(t *testing.T) {
	line := "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0"
	if v := Version(line); v.Value != "550.54.15" {
		t.Errorf("%q", v.Value)
	}
	if Version("no figures").Known {
		t.Error("a version of nothing")
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("Model: \t\t NVIDIA A40\nGPU UUID: \t GPU-1\nDevice Minor: \t 1\n1428 : NVIDIA H200X-141C\n535.1\n")
	f.Add("config 1\ngpu0/gi1/ci0/access 13\n")
	f.Fuzz(func(t *testing.T, text string) {
		for key, value := range Information(text) {
			if strings.TrimSpace(key) != key || strings.TrimSpace(value) != value || strings.Contains(key, ":") {
				t.Errorf("%q: %q", key, value)
			}
		}
		for _, kind := range CreatableTypes(text) {
			if kind.ID == "" || kind.Name == "" || strings.Trim(kind.ID, "0123456789") != "" {
				t.Errorf("type %+v", kind)
			}
		}
		for name, minor := range Minors(text) {
			if strings.ContainsAny(name, " \n") || !minor.Known {
				t.Errorf("capability %q: %v", name, minor)
			}
		}
		if v := Version(text); v.Known && strings.Trim(v.Value, "0123456789.") != "" {
			t.Errorf("version %q", v.Value)
		}
	})
}
