// SPDX-License-Identifier: Apache-2.0

// Package reference reads what is known: the models, cards and published
// measurements of data/llm-reference.yaml or a file of that form, a model's
// config.json, and names of cards as drivers and papers write them.
//
// Everything it reads may come from outside: files are bounded, and what is not
// understood is an error that names it.
package reference

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/data"
	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// MaxFile bounds files that are read.
const MaxFile = 1 << 20

// ErrInput says that a file is not of the form it should be.
var ErrInput = errors.New("bad input")

func badf(format string, args ...any) error { return errclass.Errorf(ErrInput, format, args...) }

// Source is where something was published.
type Source struct {
	Title string `yaml:"title" json:"title"`
	URL   string `yaml:"url" json:"url"`
}

// Model is a model with what was published of it.
type Model struct {
	estimate.Model
	Family   string `json:"family"`
	Source   string `json:"source"`
	Verified bool   `json:"verified"` // its total was seen published
	Note     string `json:"note,omitempty"`
}

// Row is a published measurement.
type Row struct {
	ID         string
	Kind       string
	Model      string
	Settings   map[string]yaml.Node
	Order      []string // of the settings
	Value      yaml.Node
	Unit       string
	Basis      string
	Source     string
	Confidence string
	Note       string
}

// File is such a file, read.
type File struct {
	Collected  string
	Sources    map[string]Source
	Tolerances map[string]float64 // relative, by kind
	Models     []Model
	Rows       []Row
	Cards      []estimate.Datasheet
}

// Default is the file that is built in.
func Default() (*File, error) {
	f, err := Read(data.LLMReference())
	if err != nil {
		return nil, fmt.Errorf("data/llm-reference.yaml: %w", err)
	}
	return f, nil
}

// document is the form of a file.
type document struct {
	Version    int                `yaml:"schema_version"`
	Collected  string             `yaml:"collected"`
	Sources    map[string]Source  `yaml:"sources"`
	Tolerances map[string]float64 `yaml:"suggested_tolerance"`
	Models     []struct {
		Name     string         `yaml:"name"`
		Family   string         `yaml:"family"`
		Total    int64          `yaml:"params_total"`
		Active   int64          `yaml:"params_active"`
		Source   string         `yaml:"params_source"`
		Verified bool           `yaml:"verified"`
		Arch     map[string]any `yaml:"arch"`
		Note     string         `yaml:"note"`
	} `yaml:"models"`
	Rows []struct {
		ID         string    `yaml:"id"`
		Kind       string    `yaml:"kind"`
		Model      string    `yaml:"model"`
		Settings   yaml.Node `yaml:"settings"`
		Value      yaml.Node `yaml:"value"`
		Unit       string    `yaml:"unit"`
		Basis      string    `yaml:"basis"`
		Source     string    `yaml:"source"`
		Confidence string    `yaml:"confidence"`
		Note       string    `yaml:"note"`
	} `yaml:"measurements"`
	Cards []estimate.Datasheet `yaml:"cards"`
}

// Bounds of a file's lists.
const (
	mostRows  = 20_000
	mostText  = 10_000
	mostItems = 5_000
)

// Read decodes a file.
func Read(raw []byte) (*File, error) {
	root, err := yamldoc.Parse(raw, MaxFile)
	if err != nil {
		return nil, badf("%w", err)
	}
	var d document
	if err := root.Decode(&d); err != nil {
		return nil, badf("%v", yamldoc.FirstLine(err))
	}
	if d.Version != 1 {
		return nil, badf("schema_version %d is not 1", d.Version)
	}
	if len(d.Rows) > mostRows || len(d.Models) > mostItems || len(d.Cards) > mostItems {
		return nil, badf("more than %d measurements, or %d models or GPUs", mostRows, mostItems)
	}
	f := &File{Collected: d.Collected, Sources: d.Sources, Tolerances: d.Tolerances, Cards: d.Cards}
	for kind, t := range d.Tolerances {
		if !(t >= 0 && t <= 100) {
			return nil, badf("tolerance %g of %s is not between 0 and 100", t, kind)
		}
	}
	for _, m := range d.Models {
		arch, err := readArch(m.Arch)
		if err != nil {
			return nil, badf("model %s: %v", m.Name, err)
		}
		model := Model{Model: estimate.Model{Name: m.Name, Arch: arch, Active: m.Active}, Family: m.Family, Source: m.Source, Verified: m.Verified, Note: m.Note}
		if err := model.Validate(); err != nil {
			return nil, badf("model %v", err)
		}
		if got := model.Total(); m.Total != 0 && got != m.Total {
			return nil, badf("model %s: its shape has %d parameters, and it says %d", m.Name, got, m.Total)
		}
		f.Models = append(f.Models, model)
	}
	for _, r := range d.Rows {
		row := Row{ID: r.ID, Kind: r.Kind, Model: r.Model, Value: r.Value, Unit: r.Unit, Basis: r.Basis, Source: r.Source, Confidence: r.Confidence, Note: r.Note}
		if r.ID == "" || r.Kind == "" {
			return nil, badf("line %d: a measurement without an id or a kind", r.Settings.Line)
		}
		if err := row.readSettings(&r.Settings); err != nil {
			return nil, badf("%s: %v", r.ID, err)
		}
		f.Rows = append(f.Rows, row)
	}
	for i := range f.Cards {
		if err := checkCard(&f.Cards[i]); err != nil {
			return nil, badf("GPU %s: %v", f.Cards[i].Name, err)
		}
	}
	return f, nil
}

func (r *Row) readSettings(n *yaml.Node) error {
	r.Settings = map[string]yaml.Node{}
	switch {
	case n.Kind == 0:
		return nil
	case n.Kind != yaml.MappingNode:
		return fmt.Errorf("settings are no mapping")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if _, twice := r.Settings[key]; twice {
			return fmt.Errorf("setting %s is given twice", key)
		}
		r.Settings[key] = *n.Content[i+1]
		r.Order = append(r.Order, key)
	}
	return nil
}

// Number reads a setting, or a value, that is a finite number.
func Number(n yaml.Node) (float64, bool) {
	var x float64
	if n.Kind != yaml.ScalarNode || n.Tag == "!!str" || n.Tag == "!!bool" || n.Tag == "!!null" || n.Decode(&x) != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, false
	}
	return x, true
}

// checkCard holds a card's figures in bounds.
func checkCard(c *estimate.Datasheet) error {
	for _, f := range []struct {
		name        string
		value, most float64
	}{
		{"memory_gb_label", c.MemoryGiB, 1e5}, {"memory_gib_visible", c.VisibleGiB, 1e5}, {"bandwidth_gb_s", c.Bandwidth, 1e6}, {"bf16", c.BF16, 1e6}, {"fp16", c.FP16, 1e6},
		{"fp8", c.FP8, 1e6}, {"int8", c.INT8, 1e6}, {"fp4", c.FP4, 1e6}, {"tdp_w", c.Watts, 1e5}, {"link", c.Link.Each, 1e6}, {"link", c.Link.OnePeer, 1e6},
	} {
		if !(f.value >= 0 && f.value <= f.most) {
			return fmt.Errorf("%s %g is not between 0 and %g", f.name, f.value, f.most)
		}
	}
	if c.Name == "" || len(c.Name) > 100 {
		return fmt.Errorf("its name is missing or too long")
	}
	if c.MemoryGiB == 0 || c.Bandwidth == 0 {
		return fmt.Errorf("its memory or its bandwidth is missing")
	}
	if c.BF16+c.FP16 > 0 {
		wide := max(c.BF16, c.FP16)
		if c.FP8 > 2.1*wide || c.FP4 > 4.2*wide {
			return fmt.Errorf("its rates of 8 or 4 bits are more than two or four times that of 16: they count sparsity")
		}
	}
	return nil
}

// readArch reads a shape of a file. A field that is not known is an error.
func readArch(fields map[string]any) (*estimate.Arch, error) {
	if fields == nil {
		return nil, fmt.Errorf("it has no arch")
	}
	var a estimate.Arch
	every := 0
	if ratio, ok := fields["sliding_global_ratio"]; ok {
		var local, global int
		if _, err := fmt.Sscanf(fmt.Sprint(ratio), "%d local : %d global", &local, &global); err != nil || global != 1 || local < 1 || local > 1000 {
			return nil, fmt.Errorf("sliding_global_ratio %q is not like '5 local : 1 global'", fmt.Sprint(ratio))
		}
		every = local + 1
	}
	rest := map[string]any{}
	for k, v := range fields {
		if k != "sliding_global_ratio" {
			rest[k] = v
		}
	}
	raw, err := yaml.Marshal(rest)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&a); err != nil {
		return nil, fmt.Errorf("%s", yamldoc.FirstLine(err))
	}
	if every > 0 {
		a.Every = every
	}
	return &a, nil
}
