// SPDX-License-Identifier: Apache-2.0

package check

import (
	"math"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// computed is how a kind is computed, in bytes, seconds and the like.
type computed func(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error)

var kinds = map[string]computed{
	"param_count": func(_ *estimate.Estimator, _ *asked, m *estimate.Model) (estimate.Range, error) {
		return just(float64(m.Total())), nil
	},
	"active_param_count": func(_ *estimate.Estimator, _ *asked, m *estimate.Model) (estimate.Range, error) {
		return just(float64(m.ActiveTotal())), nil
	},
	"model_states_per_gpu": modelStates, "weights_memory": weightsMemory,
	"kv_bytes_per_token": kvBytes, "kv_cache": kvCache, "kv_capacity_tokens": kvCapacity,
	"train_compute": trainCompute, "finetune_peak_memory": peakMemory, "train_peak_memory": peakMemory, "train_rule_of_thumb": peakMemory,
	"finetune_fits": fits, "infer_fits": fits,
	"step_time":           training(func(r estimate.TrainingResult) estimate.Range { return r.Step }),
	"train_throughput":    training(func(r estimate.TrainingResult) estimate.Range { return r.Rate }),
	"finetune_throughput": tuned, "mfu": training(func(r estimate.TrainingResult) estimate.Range { return r.MFU }),
	"hfu":                training(func(r estimate.TrainingResult) estimate.Range { return r.HFU }),
	"train_hw_tflops":    teraflops(func(r estimate.TrainingResult) estimate.Range { return r.HFU }),
	"train_model_tflops": teraflops(func(r estimate.TrainingResult) estimate.Range { return r.MFU }),
	"train_gpu_hours":    training(func(r estimate.TrainingResult) estimate.Range { return r.RunHours }), "train_days": trainDays,
	"latency_prefill": prefill, "latency_decode": decode, "latency_decode_per_generated_token": decode, "latency_request": request,
	"decode_throughput": decode, "serve_throughput": throughput,
	"framework_overhead": overhead, "card_visible_memory": visible,
	"layer_time": layerTime, "activation_fraction": activationFraction, "recompute_flops": recomputeFLOPs,
}

// noShape are the kinds that need no model.
var noShape = map[string]bool{"framework_overhead": true, "card_visible_memory": true}

func just(x float64) estimate.Range { return estimate.Range{Low: x, Mid: x, High: x} }

// Predict computes a row in its own unit, from its settings alone: its id, value
// and source are not looked at, but for rows that are another tool's output,
// where the source says which tool. known: the row has a shape, and a card we know
// where it names one.
func Predict(e *estimate.Estimator, file *reference.File, row *reference.Row) (r estimate.Range, known bool, err error) {
	if row.Kind == "host_memory" && row.Basis != "estimated" {
		return r, false, unclearf("kind %s is computed by another tool's rule only", row.Kind)
	}
	compute, ok := kinds[row.Kind]
	if !ok && row.Kind != "host_memory" {
		if strings.HasPrefix(row.Kind, "sharing_") || row.Kind == "matmul_tflops" || row.Kind == "bandwidth_fraction" {
			return r, false, errNoEstimate
		}
		return r, false, unclearf("kind %s is not understood", row.Kind)
	}
	a, err := read(file, row)
	if err != nil {
		_, hasModel := file.ModelNamed(row.Model)
		_, hasShape := row.Settings["layers"]
		return r, hasModel || hasShape, err
	}
	var model *estimate.Model
	if !noShape[row.Kind] {
		if model, err = a.model(row.Model); err != nil {
			return r, false, err
		}
	}
	known = a.card == "" || len(a.cards) > 0
	if row.Basis == "estimated" {
		if rule, ok := otherTools[row.Source]; ok {
			r, err = rule(a, model, row.Kind)
			if err != nil {
				return r, known, err
			}
			return inUnit(r, row, a)
		}
	}
	if compute == nil {
		return r, known, unclearf("kind %s is computed by another tool's rule only", row.Kind)
	}
	if r, err = compute(e, a, model); err != nil {
		return r, known, err
	}
	return inUnit(r, row, a)
}

// inUnit turns bytes and seconds into a row's unit.
func inUnit(r estimate.Range, row *reference.Row, a *asked) (estimate.Range, bool, error) {
	unit := strings.TrimSpace(row.Unit)
	word := strings.FieldsFunc(unit, func(c rune) bool { return c == ' ' || c == ',' || c == '(' })
	if len(word) == 0 {
		return r, true, nil
	}
	divide := 1.0
	switch word[0] {
	case "GB":
		divide = 1e9
	case "GiB":
		divide = gib
	case "MB":
		divide = 1e6
	case "MiB":
		divide = 1 << 20
	case "ms":
		divide = 1e-3
	case "PFLOP/s-days":
		divide = 1e15 * 86400
	case "bytes", "s", "tokens", "percent", "GPU-hours", "days", "bool", "TFLOP/s", "parameters":
	case "tokens/s", "output", "requests/s":
		perCard := strings.Contains(unit, "per card")
		if a.perCardAlready != perCard && a.n > 0 {
			if perCard {
				divide = float64(a.n)
			} else {
				divide = 1 / float64(a.n)
			}
		}
	default:
		return r, true, unclearf("unit %s is not understood", unit)
	}
	return estimate.Range{Low: r.Low / divide, Mid: r.Mid / divide, High: r.High / divide}, true, nil
}

// model is what the row is about: one that we know, or what its settings say.
func (a *asked) model(name string) (*estimate.Model, error) {
	if a.layers == 0 || a.hidden == 0 {
		if m, ok := a.file.ModelNamed(name); ok {
			return m, nil
		}
		if a.params == 0 {
			return nil, unclearf("no shape: model %s is not known, and its settings have no layers and hidden, or params", name)
		}
		return &estimate.Model{Name: name, Params: int64(a.params), Active: int64(a.active)}, nil
	}
	if a.heads == 0 {
		a.heads = max(1, a.hidden/128)
	}
	arch := &estimate.Arch{Layers: a.layers, Hidden: a.hidden, Heads: a.heads, KVHeads: a.kvHeads, HeadDim: a.dim, FFN: a.ffn, Vocab: a.vocab,
		Tied: true, MLP: estimate.Gelu, Norm: estimate.LayerNorm, NormsPerLayer: 2}
	if arch.KVHeads == 0 {
		arch.KVHeads = a.heads
	}
	if arch.HeadDim == 0 {
		arch.HeadDim = max(1, a.hidden/a.heads)
	}
	if arch.FFN == 0 {
		arch.FFN = 4 * a.hidden
	}
	m := &estimate.Model{Name: name, Arch: arch, Params: int64(a.params), Active: int64(a.active)}
	if a.params == 0 { // as GPT is built
		arch.Positions, arch.QKVBias, arch.OutBias, arch.MLPBias = a.seq, true, true, true
	}
	if err := m.Validate(); err != nil {
		return nil, unclearf("%v", err)
	}
	return m, nil
}

func (a *asked) format(name string) (estimate.Format, error) {
	if name == "" {
		name = "bf16"
	}
	f, err := estimate.FormatNamed(name)
	if err != nil {
		return f, unclearf("%v", err)
	}
	return f, nil
}

func modelStates(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	opt, err := estimate.OptimizerNamed("adamw")
	if err != nil {
		return estimate.Range{}, err
	}
	weight := 2.0
	if a.bytes != nil {
		weight, opt = a.bytes[0], opt.With(a.bytes[1], a.bytes[2])
	}
	n := float64(max(a.dp, a.n, 1))
	w, g, s := opt.States(float64(m.Total())/float64(max(a.tp, 1)*max(a.pp, 1)), weight, max(a.zero, 0), n)
	return just(w + g + s), nil
}

func weightsMemory(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	f, err := a.format(a.dtype)
	if err != nil {
		return estimate.Range{}, err
	}
	r := just(f.WeightBytes(m) / float64(max(a.tp, 1)*max(a.pp, 1)))
	if a.withContext { // the context was counted too
		o := e.Overhead()
		r = estimate.Range{Low: r.Low + o.Low, Mid: r.Mid + o.Mid, High: r.High + o.High}
	}
	return r, nil
}

func needShape(m *estimate.Model) error {
	if m.Arch == nil {
		return unclearf("no shape: layers and hidden are not stated")
	}
	return nil
}

// cacheBytes is what a number of the cache takes.
func (a *asked) cacheBytes() (float64, error) {
	if a.kvBytes > 0 {
		return a.kvBytes, nil
	}
	f, err := a.format(a.dtype)
	return f.KVBytes(), err
}

func kvBytes(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	b, err := a.cacheBytes()
	if err == nil {
		err = needShape(m)
	}
	if err != nil {
		return estimate.Range{}, err
	}
	return just(m.Arch.KVBytesPerToken(b)), nil
}

func kvCache(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	b, err := a.cacheBytes()
	if err == nil {
		err = needShape(m)
	}
	if err == nil && a.tokens == 0 {
		err = unclearf("tokens are not stated")
	}
	if err != nil {
		return estimate.Range{}, err
	}
	return m.Arch.KVTerm(math.Max(a.batch, 1), a.tokens, estimate.Cache{Bytes: b, Block: a.block}).Range, nil
}

func kvCapacity(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if err := needShape(m); err != nil {
		return estimate.Range{}, err
	}
	b, err := a.cacheBytes()
	if err != nil {
		return estimate.Range{}, err
	}
	if a.kvMemory > 0 || a.kvMemoryPerCard > 0 {
		memory := a.kvMemory
		token := m.Arch.KVBytesPerToken(b)
		if memory == 0 {
			memory = a.kvMemoryPerCard
			token = m.Arch.KVBytesPerCardToken(b, max(a.tp, 1))
		}
		tokens := memory / token
		if a.block > 1 {
			tokens = math.Floor(tokens/float64(a.block)) * float64(a.block)
		}
		return just(math.Floor(tokens)), nil
	}
	q, err := a.serving(m)
	if err != nil {
		return estimate.Range{}, err
	}
	r, err := e.Serve(q)
	return r.Capacity, asUnclear(err)
}

func trainCompute(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.tokens == 0 {
		return estimate.Range{}, unclearf("tokens are not stated")
	}
	return just(6 * float64(m.ActiveTotal()) * a.tokens), nil
}

// asUnclear makes a question that the estimator refuses a reason to skip.
func asUnclear(err error) error {
	if err == nil {
		return nil
	}
	return unclearf("%v", err)
}

func overhead(e *estimate.Estimator, a *asked, _ *estimate.Model) (estimate.Range, error) {
	return e.Overhead(), nil
}

// visible leaves the table's own figure out.
func visible(e *estimate.Estimator, a *asked, _ *estimate.Model) (estimate.Range, error) {
	a.card, a.cards = a.name, a.file.CardsNamed(a.name)
	return a.overCards(func(c *estimate.Datasheet) (estimate.Range, error) {
		label := *c
		label.VisibleGiB = 0
		return label.Visible(&e.K), nil
	})
}

func activationFraction(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if err := needShape(m); err != nil || a.seq == 0 {
		return estimate.Range{}, unclearf("no shape, or seq is not stated")
	}
	scores := 5 * float64(m.Arch.Heads) * float64(a.seq) / float64(m.Arch.Hidden)
	return just(100 * scores / (34 + scores)), nil
}

func recomputeFLOPs(_ *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if err := needShape(m); err != nil || a.seq == 0 || a.recompute != estimate.RecomputeSelective {
		return estimate.Range{}, unclearf("only what selective recomputation adds is computed, and seq must be stated")
	}
	h, s := float64(m.Arch.Hidden), float64(a.seq)
	return just(100 * (s / (6 * h)) / (1 + s/(6*h))), nil
}

func fits(e *estimate.Estimator, a *asked, m *estimate.Model) (estimate.Range, error) {
	if a.memoryLimit == 0 {
		return estimate.Range{}, unclearf("card_memory_gb is not stated")
	}
	if a.lora || a.qlora || a.full {
		r, err := a.tuning(e, m)
		if err != nil {
			return estimate.Range{}, err
		}
		return yes(r.Memory.Total.Mid <= a.memoryLimit*float64(max(a.n, 1))), nil
	}
	f, err := a.format(a.dtype)
	if err != nil {
		return estimate.Range{}, err
	}
	return yes(f.WeightBytes(m)+e.Overhead().Mid <= a.memoryLimit), nil
}

func yes(b bool) estimate.Range {
	if b {
		return just(1)
	}
	return just(0)
}

// otherTools are the rules of tools whose output a source has.
var otherTools = map[string]func(a *asked, m *estimate.Model, kind string) (estimate.Range, error){
	"ds-mem": deepSpeed, "accel": accelerate,
}

func deepSpeed(a *asked, m *estimate.Model, kind string) (estimate.Range, error) {
	if a.zero < 2 {
		return estimate.Range{}, unclearf("DeepSpeed's rules are for ZeRO 2 and 3")
	}
	q := estimate.DeepSpeed{Params: float64(m.Total()), Largest: a.largest, Stage: a.zero, PerNode: max(a.perNode, a.n, 1), Nodes: max(a.nodes, 1),
		OffloadState: a.offloadState, OffloadAll: a.offloadAll, ZeroInit: a.what != "zero_init=0", Buffer: a.buffer}
	switch kind {
	case "model_states_per_gpu":
		r := just(q.Card())
		if !a.configured { // what is on the host is not stated: all of it may be
			q.OffloadAll = true
			r.Low = q.Card()
		}
		return r, nil
	case "host_memory":
		return just(q.Host()), nil
	}
	return estimate.Range{}, unclearf("DeepSpeed's estimator gives no %s", kind)
}

func accelerate(a *asked, m *estimate.Model, kind string) (estimate.Range, error) {
	if kind != "weights_memory" {
		return estimate.Range{}, unclearf("accelerate estimate-memory gives no %s", kind)
	}
	f, err := a.format(a.dtype)
	return just(f.WeightBytes(m)), err
}
