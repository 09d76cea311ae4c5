// SPDX-License-Identifier: Apache-2.0

package estimate_test

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/race"
)

// rounds is how many random configurations each property is tried on. The race
// detector makes them ten times as slow; make fuzz tries them all.
var rounds = flag.Int("rounds", 100_000, "random configurations of each property")

func tries(t *testing.T) int {
	if testing.Short() || race.Enabled {
		return min(*rounds, 5_000)
	}
	return *rounds
}

func cards(t testing.TB) []estimate.Datasheet {
	t.Helper()
	f, err := reference.Default()
	if err != nil {
		t.Fatal(err)
	}
	return f.Cards
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomArch makes a network of any kind.
func randomArch(r *rand.Rand) *estimate.Arch {
	heads := pick(r, 1, 2, 4, 8, 12, 16, 24, 32, 64, 96, 128)
	kv := heads
	for kv%2 == 0 && r.IntN(2) == 0 {
		kv /= 2
	}
	a := &estimate.Arch{Layers: 1 + r.IntN(128), Heads: heads, KVHeads: kv, HeadDim: pick(r, 32, 64, 80, 128, 256), Vocab: r.IntN(300_000), Tied: r.IntN(2) == 0,
		MLP: pick(r, estimate.Gelu, estimate.SwiGLU, estimate.GeGLU), Norm: pick(r, estimate.LayerNorm, estimate.RMSNorm), NormsPerLayer: 1 + r.IntN(4),
		QKVBias: r.IntN(2) == 0, OutBias: r.IntN(2) == 0, MLPBias: r.IntN(2) == 0, QKNorm: pick(r, "", estimate.QKPerHead, estimate.QKFullWidth)}
	a.Hidden = pick(r, heads*a.HeadDim, 64*(1+r.IntN(300)))
	a.FFN = a.Hidden * (1 + r.IntN(5))
	if r.IntN(4) == 0 {
		a.Positions = r.IntN(5000)
	}
	if r.IntN(4) == 0 {
		a.Window, a.Every = 1+r.IntN(8192), r.IntN(7)
	}
	if r.IntN(4) == 0 {
		a.MoE = &estimate.MoE{Experts: pick(r, 4, 8, 64, 128, 256), TopK: 1 + r.IntN(4), ExpertFFN: 64 * (1 + r.IntN(64)), Shared: r.IntN(3), DenseLayers: r.IntN(a.Layers + 1)}
	}
	if r.IntN(8) == 0 {
		a.MLA = &estimate.MLA{QRank: pick(r, 0, 1536), KVRank: 512, NoPE: 128, RoPE: 64, Value: 128}
	}
	return a
}

func format(t testing.TB, name string) estimate.Format {
	t.Helper()
	f, err := estimate.FormatNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func optimizer(t testing.TB, name string) estimate.Optimizer {
	t.Helper()
	o, err := estimate.OptimizerNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// randomTraining makes a question that is not always a sensible one.
func randomTraining(t testing.TB, r *rand.Rand, all []estimate.Datasheet) estimate.Training {
	a := randomArch(r)
	tp, pp, cp, dp := pick(r, 1, 1, 2, 4, 8), pick(r, 1, 1, 2, 3, 8), pick(r, 1, 1, 1, 2), pick(r, 1, 2, 3, 8, 64)
	q := estimate.Training{Setup: estimate.Setup{Model: &estimate.Model{Name: "random", Arch: a}, Cards: tp * pp * cp * dp, Format: format(t, pick(r, "bf16", "bf16", "fp16", "fp32", "fp8")),
		Split: estimate.Split{TP: tp, PP: pp, CP: cp, ZeRO: r.IntN(4)}, PerMachine: pick(r, 0, 4, 8)},
		Optimizer: optimizer(t, pick(r, estimate.Optimizers()...)), MicroBatch: 1 + r.IntN(8), Seq: 1 + r.IntN(20_000), Recompute: pick(r, estimate.Recomputes()...),
		Unfused: r.IntN(4) == 0, Dropout: r.IntN(2) == 0, Eager: r.IntN(2) == 0, ChunkedLoss: r.IntN(2) == 0, InBackward: r.IntN(4) == 0, NoSequence: r.IntN(2) == 0,
		OffloadState: r.IntN(8) == 0, OffloadAll: r.IntN(8) == 0}
	q.GlobalBatch = q.MicroBatch * dp * (1 + r.IntN(16))
	if r.IntN(4) == 0 {
		q.LoRA = 1 + r.IntN(128)
		if r.IntN(2) == 0 {
			q.Format = format(t, pick(r, "nf4", "int4", "int8"))
		}
	}
	if r.IntN(2) == 0 {
		q.Card = &all[r.IntN(len(all))]
	}
	return q
}

func part(m estimate.Memory, name string) float64 {
	for _, t := range m.Parts {
		if t.Name == name {
			return t.Mid
		}
	}
	return 0
}

// checkMemory: the parts sum to the total, low is not above high.
func checkMemory(t *testing.T, m estimate.Memory, what any) {
	t.Helper()
	var sum estimate.Range
	for _, p := range m.Parts {
		if !(p.Low >= 0 && p.Low <= p.Mid && p.Mid <= p.High) {
			t.Fatalf("%s is %+v\n%+v", p.Name, p.Range, what)
		}
		sum.Low, sum.Mid, sum.High = sum.Low+p.Low, sum.Mid+p.Mid, sum.High+p.High
	}
	for _, x := range [][2]float64{{sum.Low, m.Total.Low}, {sum.Mid, m.Total.Mid}, {sum.High, m.Total.High}} {
		if math.Abs(x[0]-x[1]) > 1e-9*x[1] {
			t.Fatalf("parts sum to %g, the total is %g\n%+v", x[0], x[1], what)
		}
	}
	if m.Total.Mid < part(m, "weights") || m.Allocated.Mid > m.Total.Mid {
		t.Fatalf("total %g, weights %g, allocated %g\n%+v", m.Total.Mid, part(m, "weights"), m.Allocated.Mid, what)
	}
}

const nearly = 1 + 1e-9

// TestTrainingProperties: sums, monotony and order of memory and states.
func TestTrainingProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 1))
	e, all := estimate.New(), cards(t)
	answered := 0
	for range tries(t) {
		q := randomTraining(t, r, all)
		got, err := e.Train(q)
		if err != nil {
			if !errors.Is(err, estimate.ErrInvalid) {
				t.Fatalf("%v\n%+v", err, q)
			}
			continue
		}
		answered++
		checkMemory(t, got.Memory, q)
		for _, x := range []estimate.Range{got.Step, got.Rate, got.MFU} {
			if got.Timed && !(x.Low > 0 && x.Low <= x.Mid && x.Mid <= x.High && x.High < 1e30) {
				t.Fatalf("%+v is no figure\n%+v", x, q)
			}
		}
		more := q
		switch a := *q.Model.Arch; r.IntN(3) {
		case 0:
			more.Seq += 1 + r.IntN(1000)
		case 1:
			more.MicroBatch++
			more.GlobalBatch = q.GlobalBatch / q.MicroBatch * more.MicroBatch
		default:
			a.Layers += max(q.Split.PP, 1)
			more.Model = &estimate.Model{Name: "more", Arch: &a}
		}
		if grown, err := e.Train(more); err != nil {
			t.Fatalf("%v\n%+v", err, more)
		} else if grown.Memory.Total.Mid*nearly < got.Memory.Total.Mid {
			t.Fatalf("%g bytes, and with more tokens, batch or layers %g\n%+v\n%+v", got.Memory.Total.Mid, grown.Memory.Total.Mid, q, more)
		}
		before := math.Inf(1)
		for stage := range 4 {
			staged := q
			staged.Split.ZeRO = stage
			x, err := e.Train(staged)
			if err != nil {
				t.Fatalf("%v\n%+v", err, staged)
			}
			states := part(x.Memory, "weights") + part(x.Memory, "gradients") + part(x.Memory, "optimizer")
			if x.Memory.Moment == got.Memory.Moment && states > before*nearly {
				t.Fatalf("states of ZeRO %d take %g, of the stage before %g\n%+v", stage, states, before, q)
			}
			if x.Memory.Moment == got.Memory.Moment {
				before = states
			}
		}
	}
	if answered < tries(t)/3 {
		t.Errorf("only %d of %d questions were answered", answered, tries(t))
	}
}

// TestStates: ZeRO 3 <= 2 <= 1 <= 0, by the formula itself.
func TestStates(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 2))
	for range tries(t) {
		o := optimizer(t, pick(r, estimate.Optimizers()...))
		params, n := math.Exp(r.Float64()*40), float64(1+r.IntN(4096))
		before := math.Inf(1)
		for stage := range 4 {
			w, g, s := o.States(params, 2, stage, n)
			if w+g+s > before*nearly {
				t.Fatalf("%s, %g parameters, %g cards: stage %d takes %g, the one before %g", o.Name, params, n, stage, w+g+s, before)
			}
			before = w + g + s
		}
	}
}

// TestShapeProperties: fewer KV heads never take more; all experts are resident,
// and those that a token does not go through cost it nothing.
func TestShapeProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 3))
	for range tries(t) {
		a := randomArch(r)
		m := &estimate.Model{Arch: a}
		if m.Validate() != nil {
			continue
		}
		if m.Total() <= 0 || m.ActiveTotal() <= 0 || m.ActiveTotal() > m.Total() {
			t.Fatalf("%d parameters, %d active\n%+v", m.Total(), m.ActiveTotal(), *a)
		}
		if a.MLA == nil {
			full := *a
			full.KVHeads = a.Heads
			whole := &estimate.Model{Arch: &full}
			if m.Total() > whole.Total() || a.KVBytesPerToken(2) > full.KVBytesPerToken(2) {
				t.Fatalf("%d kv heads take more than %d\n%+v", a.KVHeads, a.Heads, *a)
			}
		}
		if a.MoE != nil {
			twice, moe := *a, *a.MoE
			moe.Experts *= 2
			twice.MoE = &moe
			double := &estimate.Model{Arch: &twice}
			routers := int64(a.Layers-a.MoE.DenseLayers) * int64(a.MoE.Experts) * int64(a.Hidden+1)
			experts := int64(a.Layers-a.MoE.DenseLayers) * int64(a.MoE.Experts) * int64(a.MoE.ExpertFFN) * int64(a.Hidden) * 2
			if grown := double.Total() - m.Total(); grown < experts {
				t.Fatalf("twice the experts add %d parameters, less than %d\n%+v", grown, experts, *a)
			}
			if grown := double.ActiveTotal() - m.ActiveTotal(); grown < 0 || grown > routers {
				t.Fatalf("twice the experts add %d to what a token goes through, more than the routers' %d\n%+v", grown, routers, *a)
			}
		}
		tokens, more := float64(r.IntN(100_000)), float64(r.IntN(1000))
		c := estimate.Cache{Bytes: pick(r, 1.0, 2), Block: pick(r, 0, 1, 16)}
		if a.KVTerm(1, tokens+more, c).Mid*nearly < a.KVTerm(1, tokens, c).Mid {
			t.Fatalf("the cache shrinks from %g to %g tokens\n%+v", tokens, tokens+more, *a)
		}
	}
}

// TestServingProperties: the same for serving, and no engine writes more than
// its cards could.
func TestServingProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 4))
	e, all := estimate.New(), cards(t)
	answered, timed := 0, 0
	for range tries(t) {
		tp, pp, dp := pick(r, 1, 1, 2, 4, 8), pick(r, 1, 1, 2), pick(r, 1, 1, 2)
		q := estimate.Serving{Setup: estimate.Setup{Model: &estimate.Model{Name: "random", Arch: randomArch(r)}, Cards: tp * pp * dp, Format: format(t, pick(r, estimate.Formats()...)),
			Split: estimate.Split{TP: tp, PP: pp}}, In: 1 + r.IntN(20_000), Out: 1 + r.IntN(4000), Concurrency: float64(r.IntN(300)), Batch: r.IntN(4) == 0, KV: pick(r, 0, 1.0, 2)}
		if r.IntN(3) > 0 {
			q.Card = &all[r.IntN(len(all))]
		}
		got, err := e.Serve(q)
		if err != nil {
			if !errors.Is(err, estimate.ErrInvalid) {
				t.Fatalf("%v\n%+v", err, q)
			}
			continue
		}
		answered++
		checkMemory(t, got.Memory, q)
		if got.Timed {
			timed++
			for _, x := range []estimate.Range{got.First, got.Between, got.Request, got.Rate, got.Alone} {
				if !(x.Low > 0 && x.Low <= x.Mid && x.Mid <= x.High && x.High < 1e30) {
					t.Fatalf("%+v is no figure\n%+v", x, q)
				}
			}
			if got.Memory.Total.Mid > got.Memory.Visible.Mid {
				t.Fatalf("served with %g bytes of %g\n%+v", got.Memory.Total.Mid, got.Memory.Visible.Mid, q)
			}
		}
		if q.Card != nil {
			continue
		}
		more := q
		switch a := *q.Model.Arch; r.IntN(3) {
		case 0:
			more.In += 1 + r.IntN(1000)
		case 1:
			more.Concurrency = max(q.Concurrency, 1) + 1
		default:
			a.Layers += pp
			more.Model = &estimate.Model{Name: "more", Arch: &a}
		}
		if grown, err := e.Serve(more); err != nil || grown.Memory.Total.Mid*nearly < got.Memory.Total.Mid {
			t.Fatalf("%g bytes, and with more tokens, requests or layers %g, %v\n%+v", got.Memory.Total.Mid, grown.Memory.Total.Mid, err, q)
		}
	}
	if answered < tries(t)/3 || timed < tries(t)/20 {
		t.Errorf("only %d of %d questions were answered, %d with times", answered, tries(t), timed)
	}
}

// TestUnitsSurvive: what is written is read again as the same figure, to the
// digits that are written; JSON keeps all of them.
func TestUnitsSurvive(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 5))
	units := []string{estimate.Bytes, estimate.Seconds, estimate.Percent, estimate.PerSecond, estimate.Tokens, estimate.Hours, estimate.Count}
	for range tries(t) {
		unit := pick(r, units...)
		x := math.Exp(r.Float64()*60 - 20)
		text := estimate.Figure(x, unit)
		y, err := estimate.ParseFigure(text, unit)
		if err != nil || math.Abs(y/x-1) > 0.006 {
			t.Fatalf("%g in %q is written %q and read %g, %v", x, unit, text, y, err)
		}
		if again := estimate.Figure(y, unit); again != text {
			t.Fatalf("%g in %q is written %q, then %q", x, unit, text, again)
		}
		term := estimate.Term{Name: "x", Unit: unit, Range: estimate.Range{Low: x / 2, Mid: x, High: 2 * x}}
		raw, err := json.Marshal(term)
		if err != nil {
			t.Fatal(err)
		}
		var back estimate.Term
		if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, term) {
			t.Fatalf("%s is read as %+v, %v", raw, back, err)
		}
	}
}

func FuzzParseFigure(f *testing.F) {
	f.Add("8 GiB", estimate.Bytes)
	f.Add("1,000.5 ms", estimate.Seconds)
	f.Add("1e999", estimate.Count)
	f.Fuzz(func(t *testing.T, text, unit string) {
		x, err := estimate.ParseFigure(text, unit)
		if err == nil && !(x >= 0 && x <= 1e30) {
			t.Fatalf("%q is read as %g", text, x)
		}
	})
}
