// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// Kinds of estimate.
const (
	ofTraining = "train"
	ofTuning   = "finetune"
	ofServing  = "serve"
)

// estimateFlags are the flags of divvy estimate as given.
type estimateFlags struct {
	kind string

	model, config                                       string
	params, active                                      string
	layers, hidden, heads, kvHeads, headDim, ffn, vocab int
	moe                                                 string

	gpuModel       string
	gpus           int
	precision      string
	tp, pp, cp, ep int
	zero           int
	tflops         float64
	measured       []string
	rule           string
	explain        bool
	asJSON         bool

	batch, micro, seq  int
	recompute          string
	optimizer, offload string
	tokens             string
	lora               int
	qlora, full, fused bool

	isl, osl    int
	concurrency float64
	kv          string
}

func (a *app) estimateCommand() *cobra.Command {
	return a.group("estimate", "Estimate memory, GPUs and time of language models",
		`  divvy estimate serve --model llama-3-8b --gpu-model L4`,
		a.estimateKindCommand(ofTraining), a.estimateKindCommand(ofTuning), a.estimateKindCommand(ofServing),
		a.estimateCheckCommand(), a.estimateModelsCommand(), a.estimateCardsCommand())
}

// estimateWords are what help says of each kind.
var estimateWords = map[string]struct{ short, long, example string }{
	ofTraining: {"Estimate pre-training: memory of each GPU, GPUs, time",
		`Without --gpus: the fewest cards that hold it, and the best split. Without
--gpu-model: this machine's GPUs, else a table over common ones. docs/estimate.md`,
		`  divvy estimate train --model llama-3-8b --gpu-model H100 --gpus 64 --tokens 1T`},
	ofTuning: {"Estimate fine-tuning: all weights, LoRA or QLoRA",
		`Without --gpus: the fewest cards that hold it, and the best split. Without
--gpu-model: this machine's GPUs, else a table over common ones. docs/estimate.md`,
		`  divvy estimate finetune --model llama-3-8b --qlora --gpu-model "RTX 4090"`},
	ofServing: {"Estimate serving: memory, requests at a time, latency, throughput",
		`Without --gpus: the fewest cards that hold it, and the best split. Without
--gpu-model: this machine's GPUs, else a table over common ones. docs/estimate.md`,
		`  divvy estimate serve --model llama-3-70b --gpu-model H100 --precision fp8 --explain`},
}

func (a *app) estimateKindCommand(kind string) *cobra.Command {
	f := estimateFlags{kind: kind}
	w := estimateWords[kind]
	cmd := &cobra.Command{Use: kind + " --model NAME [flags]", Short: w.short, Long: w.long, Example: w.example, Args: noArguments}
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "`name` of a known model (divvy estimate models)")
	flags.StringVar(&f.config, "config", "", "config.json of any other model, a `file`")
	flags.StringVar(&f.params, "params", "", "`number` of parameters, like 7B, if no shape is given")
	flags.IntVar(&f.layers, "layers", 0, "or a shape: layers,")
	flags.IntVar(&f.hidden, "hidden", 0, "width,")
	flags.IntVar(&f.heads, "heads", 0, "attention heads,")
	flags.IntVar(&f.kvHeads, "kv-heads", 0, "heads of keys and values (default: as many),")
	flags.IntVar(&f.ffn, "ffn", 0, "width of the MLP (default: 4 x hidden)")
	flags.IntVar(&f.vocab, "vocab", 0, "vocabulary (default: 50,257)")
	flags.IntVar(&f.headDim, "head-dim", 0, "size of a head (default: hidden / heads)")
	flags.StringVar(&f.moe, "moe", "", "experts x active x width of one, like 8x2x14336")
	flags.StringVar(&f.active, "active", "", "`number` of parameters that a token goes through")
	flags.StringVar(&f.gpuModel, "gpu-model", "", "`name` of a GPU (divvy estimate cards)")
	flags.IntVar(&f.gpus, "gpus", 0, "GPUs; default: the fewest that hold it")
	flags.StringVar(&f.precision, "precision", "", strings.Join(estimate.Formats(), ", "))
	flags.IntVar(&f.tp, "tp", 0, "tensor-parallel size")
	flags.IntVar(&f.pp, "pp", 0, "pipeline stages")
	flags.IntVar(&f.ep, "ep", 0, "expert-parallel size")
	flags.Float64Var(&f.tflops, "tflops", 0, "dense TFLOP/s of the GPU in that precision")
	if kind == ofServing {
		flags.IntVar(&f.isl, "isl", 1000, "tokens that a request brings")
		flags.IntVar(&f.osl, "osl", 1000, "tokens that it gets")
		flags.Float64Var(&f.concurrency, "concurrency", 0, "requests at a time; default: as many as fit")
		flags.StringVar(&f.kv, "kv", "", "`precision` of the KV cache")
		complete(cmd, "kv", words("bf16", "fp16", "fp8"))
	} else {
		f.addTraining(cmd)
	}
	flags.StringArrayVar(&f.measured, "measured", nil, "TERM=VALUE you measured, in the place of a formula")
	flags.StringVar(&f.rule, "rule", "", "what another tool would say: "+strings.Join(estimateRules(kind), ", "))
	flags.BoolVar(&f.explain, "explain", false, "print every formula with its numbers")
	jsonFlag(cmd, &f.asJSON)
	for _, rare := range []string{"vocab", "head-dim", "moe", "active", "tflops"} { // docs/estimate.md has them
		if err := flags.MarkHidden(rare); err != nil {
			panic(err)
		}
	}
	complete(cmd, "model", completeNames((*reference.File).ModelNames))
	complete(cmd, "gpu-model", completeNames((*reference.File).CardNames))
	complete(cmd, "config", fileCompletion)
	complete(cmd, "precision", words(estimate.Formats()...))
	complete(cmd, "rule", words(estimateRules(kind)...))
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error { return a.estimate(cmd, &f) })
	return cmd
}

func (f *estimateFlags) addTraining(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.cp, "cp", 0, "context-parallel size")
	flags.IntVar(&f.zero, "zero", 0, "ZeRO `stage` (FSDP: 3)")
	batch := "sequences of a step on all GPUs"
	if f.kind == ofTraining {
		batch += "; default: 4 Mi tokens"
	}
	flags.IntVar(&f.batch, "batch", 0, batch)
	flags.IntVar(&f.micro, "micro-batch", 0, "sequences at a time on a replica")
	flags.IntVar(&f.seq, "seq", 2048, "tokens of a sequence")
	flags.StringVar(&f.recompute, "recompute", "", strings.Join(estimate.Recomputes(), ", ")+"; default: as it takes to fit")
	flags.StringVar(&f.optimizer, "optimizer", "adamw", "adamw-bf16, adamw-8bit, sgd, adafactor and others")
	flags.StringVar(&f.offload, "offload", "none", "to the host: none, optimizer, all")
	flags.StringVar(&f.tokens, "tokens", "", "`number` of the whole run, like 15T, for hours")
	if f.kind == ofTuning {
		flags.IntVar(&f.lora, "lora", 0, "train adapters of this `rank`")
		flags.BoolVar(&f.qlora, "qlora", false, "adapters beside weights of 4 bits")
		flags.BoolVar(&f.full, "full", false, "train all weights (the default)")
		flags.BoolVar(&f.fused, "fused", false, "operations are fused, and logits come in parts")
		if err := flags.MarkHidden("fused"); err != nil { // docs/estimate.md has it
			panic(err)
		}
	}
	complete(cmd, "zero", words("0", "1", "2", "3"))
	complete(cmd, "recompute", words(estimate.Recomputes()...))
	complete(cmd, "optimizer", words(estimate.Optimizers()...))
	complete(cmd, "offload", words("none", "optimizer", "all"))
}

func estimateRules(kind string) []string {
	if kind == ofServing {
		return []string{"accelerate"}
	}
	return []string{"deepspeed", "accelerate"}
}

// completeNames offers names of the built-in file.
func completeNames(of func(*reference.File) []string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		file, err := reference.Default()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return startingWith(typed, of(file)), cobra.ShellCompDirectiveNoFileComp
	}
}

// count reads a large number as people write it: 7B, 1.5T, 300e9.
func count(flag, text string) (float64, error) {
	number, scale := text, 1.0
	for suffix, x := range map[string]float64{"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12} {
		if rest, ok := strings.CutSuffix(strings.ToUpper(text), suffix); ok {
			number, scale = rest, x
		}
	}
	x, err := estimate.ParseFigure(number, estimate.Count)
	if err != nil || x <= 0 || x*scale > 1e18 {
		return 0, fmt.Errorf("--%s %s is no number like 7B, 1.5T or 300e9", flag, text)
	}
	return x * scale, nil
}

// givenModel is the model that is meant, with notes on it.
func (a *app) givenModel(cmd *cobra.Command, f *estimateFlags, file *reference.File) (*estimate.Model, []string, error) {
	changed := cmd.Flags().Changed
	shape := []string{"layers", "hidden", "heads", "kv-heads", "head-dim", "ffn", "vocab", "moe"}
	var given []string
	for _, name := range append([]string{"model", "config"}, shape...) {
		if changed(name) {
			given = append(given, "--"+name)
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(given, n) })
	}
	switch {
	case has("--model") && len(given) > 1, has("--config") && len(given) > 1:
		return nil, nil, fmt.Errorf("%s and %s exclude each other: one model, or one shape", given[0], given[1])
	case (has("--model") || has("--config")) && changed("params"):
		return nil, nil, fmt.Errorf("%s and --params exclude each other", given[0])
	case has("--model"):
		m, ok := file.ModelNamed(f.model)
		if !ok {
			return nil, nil, withHint(file.UnknownModel(f.model), "divvy estimate models lists them; --config FILE reads the config.json of any other")
		}
		return m, nil, nil
	case has("--config"):
		raw, err := a.readBounded(f.config)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Base(filepath.Dir(f.config))
		if name == "." || name == "/" {
			name = strings.TrimSuffix(filepath.Base(f.config), ".json")
		}
		return reference.Config(name, raw)
	}
	return f.shape(given)
}

// shape is a model given by numbers.
func (f *estimateFlags) shape(given []string) (*estimate.Model, []string, error) {
	m := &estimate.Model{Name: "the given shape"}
	for _, n := range []struct {
		flag, text string
		to         *int64
	}{{"params", f.params, &m.Params}, {"active", f.active, &m.Active}} {
		if n.text == "" {
			continue
		}
		x, err := count(n.flag, n.text)
		if err != nil {
			return nil, nil, err
		}
		*n.to = int64(x)
	}
	if len(given) == 0 {
		if m.Params == 0 {
			return nil, nil, withHint(errors.New("which model? --model, --config, --params, or a shape"), "divvy estimate models")
		}
		if f.kind == ofServing {
			return m, []string{"how much a token takes of the cache follows from the shape, and is not in here: --layers, --hidden, --heads"}, nil
		}
		return m.Typical(), []string{"of a model of that size: --layers, --hidden and --heads make it exact"}, nil
	}
	if f.layers == 0 || f.hidden == 0 || f.heads == 0 {
		return nil, nil, fmt.Errorf("a shape takes --layers, --hidden and --heads; there is %s", strings.Join(given, ", "))
	}
	arch := &estimate.Arch{Layers: f.layers, Hidden: f.hidden, Heads: f.heads, KVHeads: f.kvHeads, HeadDim: f.headDim, FFN: f.ffn, Vocab: f.vocab,
		MLP: estimate.SwiGLU, Norm: estimate.RMSNorm, NormsPerLayer: 2}
	if arch.KVHeads == 0 {
		arch.KVHeads = f.heads
	}
	if arch.HeadDim == 0 {
		arch.HeadDim = max(f.hidden/f.heads, 1)
	}
	if arch.Vocab == 0 {
		arch.Vocab = 50257
	}
	if f.moe != "" {
		e := &estimate.MoE{}
		if n, err := fmt.Sscanf(f.moe, "%dx%dx%d", &e.Experts, &e.TopK, &e.ExpertFFN); n != 3 || err != nil || fmt.Sprintf("%dx%dx%d", e.Experts, e.TopK, e.ExpertFFN) != f.moe {
			return nil, nil, fmt.Errorf("--moe %s is not like 8x2x14336", f.moe)
		}
		arch.MoE, arch.FFN = e, 0
	} else if arch.FFN == 0 { // three matrices: two thirds of twice the width each
		arch.MLP, arch.FFN = estimate.Gelu, 4*f.hidden
	}
	m.Arch = arch
	return m, nil, m.Validate()
}

// format is the precision that is meant: what is given, else 16 bits as the card
// has them.
func (f *estimateFlags) format(card *estimate.Datasheet) (estimate.Format, error) {
	name := f.precision
	switch {
	case f.qlora && name != "" && name != "nf4":
		return estimate.Format{}, fmt.Errorf("--qlora and --precision %s exclude each other: QLoRA keeps weights in nf4", name)
	case f.qlora:
		name = "nf4"
	case name != "":
	case card != nil && card.BF16 == 0 && card.FP16 > 0:
		name = "fp16"
	default:
		name = "bf16"
	}
	return estimate.FormatNamed(name)
}

// setup is what all kinds have in common.
func (f *estimateFlags) setup(m *estimate.Model, card *estimate.Datasheet) (estimate.Setup, error) {
	s := estimate.Setup{Model: m, Card: card, Cards: max(f.gpus, 1), TFLOPS: f.tflops, Measured: map[string]float64{}}
	s.Split = estimate.Split{TP: f.tp, PP: f.pp, CP: f.cp, EP: f.ep, ZeRO: f.zero}
	for _, n := range []struct {
		flag  string
		value int
	}{{"gpus", f.gpus}, {"tp", f.tp}, {"pp", f.pp}, {"cp", f.cp}, {"ep", f.ep}, {"zero", f.zero}, {"batch", f.batch}, {"micro-batch", f.micro}, {"lora", f.lora}} {
		if n.value < 0 {
			return s, fmt.Errorf("--%s %d is less than 0", n.flag, n.value)
		}
	}
	var err error
	if s.Format, err = f.format(card); err != nil {
		return s, err
	}
	for _, text := range f.measured {
		term, value, ok := strings.Cut(text, "=")
		if !ok || term == "" || value == "" {
			return s, fmt.Errorf("--measured %s is not TERM=VALUE", text)
		}
		unit := estimate.UnitOf(term)
		if s.Measured[term], err = estimate.ParseFigure(value, unit); err != nil {
			return s, fmt.Errorf("--measured %s: %w", term, err)
		}
	}
	return s, nil
}

// training is the question of train and finetune.
func (f *estimateFlags) training(m *estimate.Model, card *estimate.Datasheet) (estimate.Training, error) {
	q := estimate.Training{MicroBatch: f.micro, GlobalBatch: f.batch, Seq: f.seq, Recompute: f.recompute, Eager: f.kind == ofTuning && !f.fused, ChunkedLoss: f.fused}
	var err error
	if q.Setup, err = f.setup(m, card); err != nil {
		return q, err
	}
	if q.Optimizer, err = estimate.OptimizerNamed(f.optimizer); err != nil {
		return q, err
	}
	switch {
	case f.batch > 0:
	case f.kind == ofTraining:
		q.BatchTokens = estimate.StepTokens
	case f.micro == 0: // the least that a card can do
		q.MicroBatch = 1
	}
	switch f.offload {
	case "none":
	case "optimizer":
		q.OffloadState = true
	case "all":
		q.OffloadAll = true
	default:
		return q, fmt.Errorf("--offload %s is not none, optimizer or all", f.offload)
	}
	if f.tokens != "" {
		if q.Tokens, err = count("tokens", f.tokens); err != nil {
			return q, err
		}
	}
	switch {
	case f.full && f.lora > 0:
		return q, errors.New("--full and --lora exclude each other: all weights are trained, or adapters beside them")
	case f.full && f.qlora:
		return q, errors.New("--full and --qlora exclude each other: weights of 4 bits are not trained")
	case f.lora > 0:
		q.LoRA = f.lora
	case f.qlora:
		q.LoRA = defaultLoRARank
	}
	return q, nil
}

// defaultLoRARank is the rank of adapters where none is given.
const defaultLoRARank = 16

// serving is the question of serve.
func (f *estimateFlags) serving(m *estimate.Model, card *estimate.Datasheet) (estimate.Serving, error) {
	q := estimate.Serving{In: f.isl, Out: f.osl, Concurrency: f.concurrency}
	var err error
	if q.Setup, err = f.setup(m, card); err != nil {
		return q, err
	}
	if f.kv != "" {
		kv, err := estimate.FormatNamed(f.kv)
		if err != nil {
			return q, fmt.Errorf("--kv: %w", err)
		}
		q.KV = kv.KVBytes()
	}
	return q, nil
}
