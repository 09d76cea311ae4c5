// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"errors"
	"math"
	"strings"
	"testing"
)

const goodJobs = `schema: divvy.jobs/v1
gpuModel: H100
jobs:
  - name: chat
    model: llama-3-8b
    stages:
      - {stage: finetune, tokens: 50M, lora: 16}
      - {stage: checkpoint}
      - {stage: wait, hours: 14}
      - {stage: serve}
`

func TestParseJobs(t *testing.T) {
	j, err := ParseJobs([]byte(goodJobs))
	if err != nil || j.Card != "H100" || len(j.Jobs) != 1 || len(j.Jobs[0].Stages) != 4 || j.Jobs[0].Stages[0].LoRA != 16 || j.Jobs[0].Stages[2].Hours != 14 {
		t.Fatalf("%+v, %v", j, err)
	}
	for change, says := range map[string]string{
		"divvy.jobs/v1>divvy.jobs/v2":                          "schema",
		"name: chat>name: 'a b'":                               "letters, digits and dashes",
		"name: chat>name: -rf":                                 "letters, digits and dashes",
		"name: chat>name: ''":                                  "letters, digits and dashes",
		"model: llama-3-8b>model: ''":                          "no model",
		"stage: checkpoint>stage: sleep":                       "none of pretrain",
		"hours: 14>hours: -1":                                  "hours",
		"hours: 14>hours: .nan":                                "hours",
		"hours: 14>hours: 1e9":                                 "hours",
		"tokens: 50M>hours: 1, tokens: 50M":                    "exclude each other",
		"stage: serve>stage: serve, tokens: 5M":                "tokens are of",
		"stage: serve>stage: serve, lora: 5":                   "rank",
		"lora: 16>lora: -1":                                    "rank",
		"gpuModel: H100>color: red":                            "not found",
		"gpuModel: H100>gpuModel: &a H100":                     "",
		"jobs:>jobs: []\nother:":                               "not found",
		"model: llama-3-8b>model: llama-3-8b\n    gpus: 99999": "GPUs",
	} {
		old, by, _ := strings.Cut(change, ">")
		raw := strings.Replace(goodJobs, old, by, 1)
		if raw == goodJobs {
			t.Fatalf("%q is not there", old)
		}
		_, err := ParseJobs([]byte(raw))
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", change, err)
			}
			continue
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v does not say %q", change, err, says)
		}
	}
	for _, raw := range []string{"", "{", "[]", "schema: divvy.jobs/v1", goodJobs + "---\n" + goodJobs, strings.Repeat("#", MaxJobFile+1),
		"a: &a [x,x]\nb: &b [*a,*a]\nschema: divvy.jobs/v1\njobs: [*b]\n"} {
		if _, err := ParseJobs([]byte(raw)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: %v", raw, err)
		}
	}
}

// FuzzParseJobs: what is taken makes sense, and nothing panics.
func FuzzParseJobs(f *testing.F) {
	f.Add([]byte(goodJobs))
	f.Add([]byte("schema: divvy.jobs/v1\njobs: [{name: a, model: b, gpus: 4, precision: fp8, stages: [{stage: pretrain, hours: 1}]}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("0\n\n0"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := ParseJobs(raw)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		for _, x := range j.Jobs {
			if !plainName(x.Name) || len(x.Stages) == 0 || x.Model == "" {
				t.Errorf("%+v", x)
			}
			for _, s := range x.Stages {
				if s.Hours < 0 || math.IsInf(s.Hours, 0) || math.IsNaN(s.Hours) || stageNeeds[s.Stage].Stage == "" {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}
