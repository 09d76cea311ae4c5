// SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"strings"
	"testing"
)

const (
	uuid = "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c"
	pod  = "0c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d35"
)

func TestThereAndBack(t *testing.T) {
	r := Record{Node: "n", Pod: pod, Containers: map[string]Share{
		"a": {GPUs: []string{uuid}, MemoryBytes: 1 << 30, Cores: 30, Policy: "fixed", Enforce: "front"}, "b": {GPUs: []string{uuid}, Exclusive: true},
	}}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(text, "n", pod)
	r.APIVersion = "divvy.dev/v1"
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%+v (%v)", back, err)
	}
	if s, err := back.Of("a", 1); err != nil || s.Cores != 30 {
		t.Errorf("%+v (%v)", s, err)
	}
}

func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no divvy.dev/allocation",
		"{":                                "allocation",
		`{"apiVersion":"divvy.dev/v1"} {}`: "more than one document",
		`{"apiVersion":"divvy.dev/v2","node":"n","pod":"` + pod + `"}`: "divvy.dev/v2",
		`{"apiVersion":"divvy.dev/v1","node":"m","pod":"` + pod + `"}`: `node "m"`,
		`{"apiVersion":"divvy.dev/v1","node":"n"}`:                     "UID",
		`{"uid":1}`:                     "uid",
		strings.Repeat(" ", MaxBytes+1): "are the most",
	} {
		if r, err := Decode(text, "n", pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %+v (%v), want %q", text, r, err, want)
		}
	}
	for name, s := range map[string]Share{
		"no whole MiB": {GPUs: []string{uuid}, MemoryBytes: 1000}, "101": {GPUs: []string{uuid}, Cores: 101}, "no GPU's UUID": {GPUs: []string{"all"}},
		"0 GPUs": {}, "whole GPUs": {GPUs: []string{uuid}, Exclusive: true, Cores: 3}, "2 GPUs": {GPUs: []string{uuid, strings.Replace(uuid, "4404", "5404", 1)}},
	} {
		if _, err := (Record{Containers: map[string]Share{"c": s}}).Of("c", 1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %q", s, err, name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"apiVersion":"divvy.dev/v1","node":"n","pod":"` + pod + `","containers":{"c":{"gpus":["` + uuid + `"]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Decode(text, "n", pod)
		if err == nil && (r.Node != "n" || r.Pod != pod) {
			t.Errorf("%q was taken for %+v", text, r)
		}
	})
}
