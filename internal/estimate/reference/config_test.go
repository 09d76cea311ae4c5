// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/estimate"
)

// TestConfigs: config.json files as their makers publish them have the parameters
// and the cache that the reference has of the model.
func TestConfigs(t *testing.T) {
	file, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob("testdata/configs/*.json")
	if err != nil || len(paths) < 15 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Config(name, raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, ok := file.ModelNamed(name)
		if !ok {
			t.Errorf("%s: no such model", name)
			continue
		}
		if got.Total() != want.Total() || got.ActiveTotal() != want.ActiveTotal() {
			t.Errorf("%s: %d parameters, %d active; want %d, %d", name, got.Total(), got.ActiveTotal(), want.Total(), want.ActiveTotal())
		}
		for _, tokens := range []float64{1, 600, 10_000} {
			c := estimate.Cache{Bytes: 2}
			if g, w := got.Arch.KVTerm(1, tokens, c).Mid, want.Arch.KVTerm(1, tokens, c).Mid; g != w {
				t.Errorf("%s: cache of %g tokens %g, want %g", name, tokens, g, w)
			}
		}
		if got.Lower != "" {
			t.Errorf("%s: %s is not understood", name, got.Lower)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	const plain = `"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100`
	for _, c := range []struct{ name, raw, want string }{
		{"no JSON", `{`, "not a JSON object"},
		{"a list", `[1]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"nothing in it", `{}`, "num_hidden_layers, hidden_size or num_attention_heads is missing"},
		{"a word for a number", `{` + plain + `,"head_dim":"x"}`, "head_dim is no number"},
		{"a fraction", `{` + plain + `,"head_dim":1.5}`, "head_dim 1.5 is no whole number"},
		{"a negative number", `{"model_type":"llama","num_hidden_layers":-1}`, "num_hidden_layers -1"},
		{"nonsense", `{"model_type":"llama","num_hidden_layers":99999999,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128}`, "layers 99999999 is not between"},
		{"too many digits", `{"model_type":"llama","num_hidden_layers":1e400}`, "num_hidden_layers 1e400"},
		{"heads that do not divide", `{` + plain + `,"num_key_value_heads":3}`, "3 kv heads do not divide 4 heads"},
		{"too long", strings.Repeat(" ", MaxFile+1), "longer than"},
	} {
		_, _, err := Config("x", []byte(c.raw))
		if err == nil || !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestConfigLower: what is not known is named, and leaves a lower bound.
func TestConfigLower(t *testing.T) {
	const plain = `"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,"vocab_size":100`
	for _, c := range []struct{ raw, names string }{
		{`{"model_type":"jamba",` + plain + `}`, `model_type "jamba"`},
		{`{"model_type":"llama",` + plain + `,"mamba_d_state":16}`, "mamba_d_state"},
		{`{"model_type":"llava","vision_config":{"hidden_size":10},"text_config":{"model_type":"llama",` + plain + `}}`, "vision_config"},
		{`{"model_type":"qwen3",` + plain + `,"layer_types":["linear_attention","full_attention"]}`, "linear_attention"},
	} {
		m, notes, err := Config("x", []byte(c.raw))
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if !strings.Contains(m.Lower, c.names) || len(notes) == 0 || !strings.Contains(notes[len(notes)-1], c.names) {
			t.Errorf("%s: lower %q, notes %q; want %s named", c.raw, m.Lower, notes, c.names)
		}
	}
}

func FuzzConfig(f *testing.F) {
	paths, _ := filepath.Glob("testdata/configs/*.json")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte(`{"model_type":"x","text_config":{"num_hidden_layers":1,"hidden_size":1,"num_attention_heads":1,"layer_types":["a"]},"vision_config":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, _, err := Config("x", raw)
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Fatalf("%v is not of the class of bad input", err)
			}
			return
		}
		if m.Total() <= 0 || m.ActiveTotal() <= 0 || m.ActiveTotal() > m.Total() {
			t.Fatalf("%d parameters, %d active", m.Total(), m.ActiveTotal())
		}
		again, _, err := Config("x", raw)
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("a second reading differs: %v", err)
		}
	})
}
