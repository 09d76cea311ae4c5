// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/data"
)

func builtIn(t testing.TB) *File {
	t.Helper()
	f, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDefault: the built-in file is whole, and what it refers to is there.
func TestDefault(t *testing.T) {
	f := builtIn(t)
	if len(f.Models) < 41 || len(f.Rows) < 253 || len(f.Cards) < 22 {
		t.Errorf("%d models, %d measurements, %d cards", len(f.Models), len(f.Rows), len(f.Cards))
	}
	for _, r := range f.Rows {
		if f.Sources[r.Source].Title == "" {
			t.Errorf("%s: no source %q", r.ID, r.Source)
		}
	}
	for _, c := range f.Cards {
		for _, s := range c.Sources {
			if f.Sources[s].Title == "" {
				t.Errorf("card %s: no source %q", c.Name, s)
			}
		}
	}
	for _, m := range f.Models {
		if f.Sources[m.Source].Title == "" {
			t.Errorf("model %s: no source %q", m.Name, m.Source)
		}
	}
}

// TestDense: no rate counts sparsity: what SMs, their products per clock and the
// clock give at most, by hand from the makers' papers.
func TestDense(t *testing.T) {
	dense := map[string]float64{ // SMs x FMA per SM and clock x 2 x boost GHz / 1000
		"H100-SXM-80GB": 132 * 2048 * 2 * 1.83 / 1000, "A100-SXM-80GB": 108 * 1024 * 2 * 1.41 / 1000, "L4-24GB": 58 * 512 * 2 * 2.04 / 1000,
		"L40S-48GB": 142 * 512 * 2 * 2.52 / 1000, "T4-16GB": 40 * 512 * 2 * 1.59 / 1000, "RTX-4090-24GB": 128 * 256 * 2 * 2.52 / 1000,
	}
	for _, c := range builtIn(t).Cards {
		most, ok := dense[c.Name]
		rate := max(c.BF16, c.FP16)
		if ok && (rate > most*1.03 || rate < most*0.9) {
			t.Errorf("%s: %g TFLOP/s, its units give %.0f", c.Name, rate, most)
		}
	}
}

func TestCardNames(t *testing.T) {
	f := builtIn(t)
	for _, c := range []struct {
		name string
		want []string
	}{
		{"NVIDIA H100 80GB HBM3", []string{"H100-SXM-80GB"}}, {"NVIDIA H100 PCIe", []string{"H100-PCIe-80GB"}}, {"NVIDIA H100 NVL", []string{"H100-NVL-94GB"}},
		{"NVIDIA H200", []string{"H200-SXM-141GB"}}, {"H200", []string{"H200-SXM-141GB"}}, {"B200", []string{"B200-SXM-180GB"}}, {"GB200", []string{"GB200-186GB"}},
		{"NVIDIA A100-SXM4-40GB", []string{"A100-SXM-40GB"}}, {"NVIDIA A100-PCIE-40GB", []string{"A100-PCIe-40GB"}}, {"NVIDIA A100 80GB PCIe", []string{"A100-PCIe-80GB"}},
		{"A100-80GB", []string{"A100-SXM-80GB"}}, {"A100-80GB PCIe", []string{"A100-PCIe-80GB"}}, {"A100", []string{"A100-SXM-80GB", "A100-SXM-40GB"}},
		{"NVIDIA L4", []string{"L4-24GB"}}, {"NVIDIA L40S", []string{"L40S-48GB"}}, {"Tesla T4", []string{"T4-16GB"}}, {"NVIDIA A10", []string{"A10-24GB"}},
		{"NVIDIA GeForce RTX 4090", []string{"RTX-4090-24GB"}}, {"4090", []string{"RTX-4090-24GB"}}, {"RTX 4090", []string{"RTX-4090-24GB"}},
		{"AMD Instinct MI300X", []string{"MI300X-192GB"}}, {"MI325X", []string{"MI325X-256GB"}}, {"Gaudi2", []string{"Gaudi2-96GB"}}, {"Intel Data Center GPU Max 1550", []string{"Max-1550-128GB"}},
		{"NVIDIA H100 80GB HBM3 (simulated)", []string{"H100-SXM-80GB"}},
		{"A10G", nil}, {"L40", nil}, {"H800", nil}, {"RTX 4090 D", nil}, {"A100-30GB", nil}, {"", nil}, {"GPU", nil}, {"V100-16GB", nil},
	} {
		var got []string
		for _, card := range f.CardsNamed(c.name) {
			got = append(got, card.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q means %v, want %v", c.name, got, c.want)
		}
	}
}

func TestModelNames(t *testing.T) {
	f := builtIn(t)
	for name, want := range map[string]string{
		"llama-3-8b": "llama-3-8b", "meta-llama/Llama-3.1-8B-Instruct": "llama-3-8b", "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b", "Meta-Llama-3-70B": "llama-3-70b",
		"llama-3.3-70b": "llama-3-70b", "mistralai/Mixtral-8x7B": "mixtral-8x7b", "GPT2": "gpt2",
	} {
		if m, ok := f.ModelNamed(name); !ok || m.Name != want {
			t.Errorf("%s is not %s: %+v", name, want, m)
		}
	}
	if err := f.UnknownModel("lama-3-8b"); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "llama-3-8b") {
		t.Errorf("%v names no like model", err)
	}
	for _, c := range []struct{ name, like string }{{"qwen3-31b", "qwen3-32b"}, {"llama3-8b", "llama-3-8b"}, {"deepseek", "deepseek-v3"}} {
		if near := Nearest(c.name, f.ModelNames()); !slices.Contains(near, c.like) {
			t.Errorf("like %s: %v, want %s", c.name, near, c.like)
		}
	}
}

func TestRefused(t *testing.T) {
	raw := string(data.LLMReference())
	change := func(from, to string) string {
		if !strings.Contains(raw, from) {
			t.Fatalf("no %q in the file", from)
		}
		return strings.Replace(raw, from, to, 1)
	}
	bomb := "schema_version: 1\na: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: [*b, *b, *b, *b]\n"
	for _, c := range []struct{ name, raw, want string }{
		{"too long", strings.Repeat("#", MaxFile+1), "longer than"},
		{"no YAML", "a: [", "not YAML"},
		{"a bomb", bomb, "aliases"},
		{"another version", "schema_version: 2\n", "schema_version 2"},
		{"nothing", "", "schema_version 0"},
		{"a total that is another", change("params_total: 124439808", "params_total: 124439809"), "its shape has 124439808 parameters"},
		{"a field of a shape that is not known", change("arch: {layers: 12,", "arch: {depth: 3, layers: 12,"), "depth"},
		{"no layers", change("arch: {layers: 12,", "arch: {layers: 0,"), "layers 0"},
		{"a setting twice", change("settings: {params: 7500000000,", "settings: {params: 1, params: 7500000000,"), "params"},
		{"sparse rates", change("fp8_dense_tflops: 1978.9, int8_dense_tops: 1978.9, tdp_w: 700, link: {kind: NVLink 4, gb_s_both_directions: 900, gb_s_each_direction: 450, topology: all-to-all through NVSwitch on 8-card boards}, pcie: 5.0 x16, mig: {supported: true, max_instances: 7}, sources: [nv-h100",
			"fp8_dense_tflops: 3957.8, int8_dense_tops: 1978.9, tdp_w: 700, link: {kind: NVLink 4, gb_s_both_directions: 900, gb_s_each_direction: 450, topology: all-to-all through NVSwitch on 8-card boards}, pcie: 5.0 x16, mig: {supported: true, max_instances: 7}, sources: [nv-h100"), "sparsity"},
		{"a card without memory", change("memory_gb_label: 24, memory_type: GDDR6, bandwidth_gb_s: 300", "memory_gb_label: 0, memory_type: GDDR6, bandwidth_gb_s: 300"), "memory"},
		{"a negative bandwidth", change("bandwidth_gb_s: 300,", "bandwidth_gb_s: -300,"), "bandwidth_gb_s -300"},
		{"no id", change("id: zero-7b5-stage0, ", ""), "without an id"},
		{"a tolerance that is none", change("param_count: 0", "param_count: .nan"), "tolerance"},
	} {
		if _, err := Read([]byte(c.raw)); err == nil || !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	raw := data.LLMReference()
	f.Add(raw[:4000])
	f.Add([]byte("schema_version: 1\nmodels: [{name: x, arch: {layers: 1, hidden: 8, heads: 1, kv_heads: 1, head_dim: 8, ffn: 8, vocab: 8, mlp: gelu, norm: rmsnorm, norms_per_layer: 2}}]\nmeasurements: [{id: a, kind: b, settings: {c: [1]}}]\ncards: [{name: c, memory_gb_label: 1, bandwidth_gb_s: 1}]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := Read(raw)
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Fatalf("%v is not of the class of bad input", err)
			}
			return
		}
		for _, m := range file.Models {
			if m.Total() <= 0 {
				t.Fatalf("%s has %d parameters", m.Name, m.Total())
			}
		}
		file.CardsNamed("A100")
		file.ModelNamed("llama")
	})
}

func FuzzNames(f *testing.F) {
	file := builtIn(f)
	f.Add("NVIDIA H100 80GB HBM3")
	f.Add("meta-llama/Llama-3.1-8B-Instruct-Instruct")
	f.Fuzz(func(t *testing.T, name string) {
		file.CardsNamed(name)
		file.ModelNamed(name)
		Nearest(name, file.ModelNames())
	})
}
