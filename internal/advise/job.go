// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// SchemaJobs is the form of a file of jobs.
const SchemaJobs = "divvy.jobs/v1"

// Jobs is such a file: what runs on a kind of card, stage after stage.
type Jobs struct {
	Schema string `yaml:"schema"`
	Card   string `yaml:"gpuModel"` // empty: this machine's
	Jobs   []Job  `yaml:"jobs"`
}

// Job is one model's life.
type Job struct {
	Name      string  `yaml:"name"`
	Model     string  `yaml:"model"`
	Precision string  `yaml:"precision"`
	Cards     int     `yaml:"gpus"` // 0: as many as it takes
	Stages    []Stage `yaml:"stages"`
}

// Stage is one stage of it: so many hours, or tokens, or until somebody ends it.
type Stage struct {
	Stage  string  `yaml:"stage"`
	Hours  float64 `yaml:"hours"`
	Tokens string  `yaml:"tokens"`
	LoRA   int     `yaml:"lora"`
}

// Bounds of a file of jobs.
const (
	MaxJobFile = 1 << 20
	mostJobs   = 200
	mostStages = 200
)

// ParseJobs reads a file of jobs.
func ParseJobs(raw []byte) (Jobs, error) {
	var j Jobs
	if _, err := yamldoc.Parse(raw, MaxJobFile); err != nil {
		return j, invalidf("%w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&j); err != nil {
		line, _, _ := strings.Cut(yamldoc.FirstLine(err), " in type ")
		return j, invalidf("%s", line)
	}
	if err := decoder.Decode(new(yaml.Node)); err == nil {
		return j, invalidf("more than one document")
	}
	return j, j.validate()
}

func (j *Jobs) validate() error {
	if j.Schema != SchemaJobs {
		return invalidf("schema %.60q is not %s", j.Schema, SchemaJobs)
	}
	if len(j.Jobs) == 0 || len(j.Jobs) > mostJobs {
		return invalidf("%d jobs are not between 1 and %d", len(j.Jobs), mostJobs)
	}
	seen := map[string]bool{}
	for i := range j.Jobs {
		x := &j.Jobs[i]
		switch {
		case !plainName(x.Name):
			return invalidf("job %d: name %.40q is not of letters, digits and dashes", i+1, x.Name)
		case seen[x.Name]:
			return invalidf("job %s is there twice", x.Name)
		case x.Model == "":
			return invalidf("job %s has no model", x.Name)
		case x.Cards < 0 || x.Cards > mostCards:
			return invalidf("job %s: %d GPUs are not between 1 and %d", x.Name, x.Cards, mostCards)
		case len(x.Stages) == 0 || len(x.Stages) > mostStages:
			return invalidf("job %s: %d stages are not between 1 and %d", x.Name, len(x.Stages), mostStages)
		}
		seen[x.Name] = true
		for n, s := range x.Stages {
			if err := s.validate(); err != nil {
				return fmt.Errorf("job %s, stage %d: %w", x.Name, n+1, err)
			}
		}
	}
	return nil
}

func (s *Stage) validate() error {
	known := false
	for _, word := range stages {
		known = known || word == s.Stage
	}
	switch {
	case !known:
		return invalidf("stage %.40q is none of %s", s.Stage, strings.Join(stages, ", "))
	case math.IsNaN(s.Hours) || s.Hours < 0 || s.Hours > 1e6:
		return invalidf("%g hours are not between 0 and 1e6", s.Hours)
	case s.Hours > 0 && s.Tokens != "":
		return invalidf("hours and tokens exclude each other")
	case s.Tokens != "" && s.Stage != "pretrain" && s.Stage != "finetune":
		return invalidf("tokens are of pretrain and finetune")
	case s.LoRA < 0 || s.LoRA > 1<<16 || s.LoRA > 0 && s.Stage != "finetune":
		return invalidf("lora %d is no rank, or the stage is not finetune", s.LoRA)
	}
	return nil
}

func plainName(name string) bool {
	if name == "" || len(name) > 50 || name[0] == '-' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}
