// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
)

// run calls divvy and gives its output, with each line in 80 columns.
func screenful(t *testing.T, code int, arguments ...string) string {
	t.Helper()
	var out, complaints bytes.Buffer
	if got := Main(arguments, strings.NewReader(""), &out, &complaints); got != code {
		t.Fatalf("divvy %s: code %d, want %d\n%s%s", strings.Join(arguments, " "), got, code, out.String(), complaints.String())
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len(line) > screen && !strings.Contains(line, "://") && !strings.HasPrefix(out.String(), "{") {
			t.Errorf("divvy %s: %d columns: %s", strings.Join(arguments, " "), len(line), line)
		}
	}
	return out.String()
}

// TestEstimateOfThisMachine: without --gpu-model the cards that are here.
func TestEstimateOfThisMachine(t *testing.T) {
	root := t.TempDir()
	if _, err := fakekernel.Unpack("../gpu/testdata/machines/mi300x-cpx.txtar", root); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DIVVY_ROOT", root)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if out := screenful(t, 0, "estimate", "serve", "--model", "llama-3.1-405b"); !strings.Contains(out, "x MI300X-192GB") || !strings.Contains(out, "here)") {
		t.Errorf("no MI300X of this machine:\n%s", out)
	}
}

// TestEstimateFitsAScreen: every kind of answer, for models of every kind.
func TestEstimateFitsAScreen(t *testing.T) {
	t.Setenv("DIVVY_ROOT", t.TempDir())
	models := []string{"llama-3-8b", "deepseek-v3"}
	if !testing.Short() {
		models = append(models, "gpt2", "llama-3.1-405b", "mixtral-8x7b", "gemma-3-1b")
	}
	for _, model := range models {
		for _, kind := range []string{"train", "finetune", "serve"} {
			screenful(t, 0, "estimate", kind, "--model", model)
			screenful(t, 0, "estimate", kind, "--model", model, "--gpu-model", "H100", "--explain")
		}
		screenful(t, 0, "estimate", "finetune", "--model", model, "--gpu-model", "A100", "--qlora", "--tokens", "1B")
	}
	screenful(t, 0, "estimate", "models")
	screenful(t, 0, "estimate", "cards")
	screenful(t, 0, "estimate", "check")
}

// TestEstimateJSON: the document is whole, and parts sum to the total.
func TestEstimateJSON(t *testing.T) {
	t.Setenv("DIVVY_ROOT", t.TempDir())
	var d estimateDocument
	if err := json.Unmarshal([]byte(screenful(t, 0, "estimate", "serve", "--model", "llama-3-8b", "--gpu-model", "H100", "--json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Schema != "divvy.estimate/v1" || d.Kind != "serve" || len(d.Answers) != 1 || d.Model.Parameters != 8030261248 {
		t.Fatalf("%+v", d)
	}
	x := d.Answers[0]
	sum := 0.0
	for _, p := range x.Serving.Memory.Parts {
		sum += p.Mid
	}
	if x.Card != "H100-SXM-80GB" || x.Fits != "yes" || sum < x.Serving.Memory.Total.Mid*(1-1e-9) || sum > x.Serving.Memory.Total.Mid*(1+1e-9) || len(x.Serving.Terms) < 8 {
		t.Errorf("%+v", x)
	}
}
