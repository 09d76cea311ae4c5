// SPDX-License-Identifier: Apache-2.0

package check

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/pattern"
)

// phrase is a piece of text and what it says. Longer ones come first.
type phrase struct {
	form func() *regexp.Regexp // made when it is asked for: most commands never do
	says func(a *asked, found []string)
}

func say(form string, says func(a *asked, found []string)) phrase {
	return phrase{pattern.Of(`(?i)(^|[^a-z0-9])(` + form + `)($|[^a-z0-9])`), says}
}

// phrases are what settings in words are made of.
var phrases = []phrase{
	say(`no optimizer in backward`, func(a *asked, _ []string) { a.inBackward = false }),
	say(`optimizer in backward|fused optimizer|fuse optimizer step into backward|optimizer step in backward`, func(a *asked, _ []string) { a.inBackward = true }),
	say(`no 8-bit`, func(a *asked, _ []string) { a.state8 = false }),
	say(`8-bit paged adamw?|paged adamw? ?-?8-?bit|paged 8-bit adamw?`, func(a *asked, _ []string) { a.state8, a.paged = true, true }),
	say(`8-bit adamw?|adamw? ?-?8-?bit`, func(a *asked, _ []string) { a.state8 = true }),
	say(`paged optimizer|paged adamw?`, func(a *asked, _ []string) { a.paged = true }),
	say(`adam-fp32-master|adam with fp32 master`, func(a *asked, _ []string) { a.optimizer = "adamw" }),
	say(`sgd with momentum|sgd-momentum`, func(a *asked, _ []string) { a.optimizer = "sgd-momentum" }),
	say(`sgd`, func(a *asked, _ []string) { a.optimizer = "sgd" }),
	say(`weights ?\+ ?gradients ?\+ ?adam \(([0-9]+) b per parameter\)|([0-9]+) b per parameter`, func(a *asked, found []string) {
		for _, n := range found[3:] {
			if x, err := strconv.ParseFloat(n, 64); err == nil {
				a.perParam = x
			}
		}
	}),
	say(`adamw?`, func(a *asked, _ []string) {}),
	say(`lora-init`, func(a *asked, _ []string) { a.lora, a.initOnly = true, true }),
	say(`qlora-init`, func(a *asked, _ []string) { a.qlora, a.initOnly = true, true }),
	say(`qlora`, func(a *asked, _ []string) { a.qlora = true }),
	say(`lora`, func(a *asked, _ []string) { a.lora = true }),
	say(`all linear layers?|all layers \+ output|all linear layers \+ output`, func(a *asked, _ []string) { a.qv = false }),
	say(`q, ?k, ?v(, ?(o|output|out))?( only)?`, func(a *asked, _ []string) { a.qv = false }),
	say(`q, ?v( only)?`, func(a *asked, _ []string) { a.qv = true }),
	say(`rank ?=? ?([0-9]+)`, func(a *asked, found []string) { a.rank, _ = strconv.Atoi(found[3]) }),
	say(`nf4|4-bit`, func(a *asked, _ []string) { a.dtype = "nf4" }),
	say(`double quant(ization)?|nested quantization`, func(*asked, []string) {}),
	say(`bf16 compute|fp16 compute`, func(*asked, []string) {}),
	say(`full 16-bit fine-tuning|full fine-tuning|full_finetune_single_device|full_finetune_distributed`, func(a *asked, _ []string) { a.full = true }),
	say(`lora_finetune_single_device|lora_finetune_distributed`, func(a *asked, _ []string) { a.lora = true }),
	say(`full_shard`, func(a *asked, _ []string) { a.zero = 3 }),
	say(`shard_grad_op`, func(a *asked, _ []string) { a.zero = 2 }),
	say(`no_shard`, func(a *asked, _ []string) { a.zero = 0 }),
	say(`zero-?([0-3])`, func(a *asked, found []string) { a.zero, _ = strconv.Atoi(found[3]) }),
	say(`fsdp ?\+ ?tensor parallel`, func(a *asked, _ []string) { a.zero = 3 }),
	say(`fsdp`, func(a *asked, _ []string) { a.zero = 3 }),
	say(`ptd`, func(*asked, []string) {}),
	say(`naive pipeline \(accelerate\)|naive pipeline`, func(a *asked, _ []string) { a.pipeline = true }),
	say(`no offload`, func(*asked, []string) {}),
	say(`all offload|parameters and optimizer offload|cpu offload`, func(a *asked, _ []string) { a.offloadAll = true }),
	say(`optimizer offload`, func(a *asked, _ []string) { a.offloadState = true }),
	say(`activation offload(ing)?`, func(a *asked, _ []string) { a.offloadActs = true }),
	say(`zero_init=1`, func(*asked, []string) {}),
	say(`zero_init=0`, func(a *asked, _ []string) { a.what = "zero_init=0" }),
	say(`selective ?(\+|and|with)? ?sequence parallel(ism)?|selective`, func(a *asked, _ []string) { a.recompute = estimate.RecomputeSelective }),
	say(`sequence parallel(ism)?`, func(*asked, []string) {}),
	say(`no recompute|none`, func(a *asked, _ []string) { a.recompute = estimate.RecomputeNone }),
	say(`full`, func(a *asked, _ []string) { a.full = true }),
	say(`activation checkpointing|gradient checkpointing`, func(a *asked, _ []string) { a.recompute = estimate.RecomputeFull }),
	say(`chunked cross entropy`, func(a *asked, _ []string) { a.chunked = true }),
	say(`flash(attention)?(-?[23])?`, func(a *asked, _ []string) { a.attention = "flash" }),
	say(`torch|eager|unfused`, func(a *asked, _ []string) { a.attention = "unfused" }),
	say(`fp8 weights`, func(a *asked, _ []string) { a.dtype = "fp8" }),
	say(`(bf16|fp16) weights`, func(a *asked, found []string) { a.dtype = strings.ToLower(found[3]) }),
	say(`(bf16|fp16) kv( cache)?`, func(a *asked, _ []string) { a.kvBytes = 2 }),
	say(`fp8 kv( cache)?`, func(a *asked, _ []string) { a.kvBytes = 1 }),
	say(`fp8 hybrid|fp8`, func(a *asked, _ []string) { a.dtype, a.precision = "fp8", "fp8" }),
	say(`amp_(bf16|fp16)`, func(a *asked, found []string) { a.dtype, a.precision = found[3], "mixed" }),
	say(`(bf16|fp16|fp32) mixed`, func(a *asked, found []string) { a.dtype, a.precision = strings.ToLower(found[3]), "mixed" }),
	say(`mixed precision|mixed`, func(a *asked, _ []string) { a.precision = "mixed" }),
	say(`16-bit base|16-bit`, func(a *asked, _ []string) { a.dtype = "bf16" }),
	say(`bf16|fp16|fp32|int8|int4|fp4|nvfp4|mxfp4|awq|gptq`, func(a *asked, found []string) {
		f, _ := estimate.FormatNamed(found[2])
		a.dtype = f.Name
	}),
	say(`compiled?`, func(a *asked, _ []string) { a.compile = "yes" }),
	say(`packed to [0-9]+|packed( dataset)?`, func(a *asked, _ []string) { a.unpacked = false }),
	say(`unpacked`, func(a *asked, _ []string) { a.unpacked = true }),
}

// understand takes known phrases out of a text until nothing is left; what is
// left is not understood.
func (a *asked) understand(text string) error {
	rest := text
	for _, p := range phrases {
		for {
			at := p.form().FindStringSubmatchIndex(rest)
			if at == nil {
				break
			}
			found := make([]string, len(at)/2)
			for i := range found {
				if at[2*i] >= 0 {
					found[i] = rest[at[2*i]:at[2*i+1]]
				}
			}
			p.says(a, found)
			rest = rest[:at[4]] + " " + rest[at[5]:]
		}
	}
	if left := strings.Trim(rest, " ,;+()"); regexp.MustCompile(`[A-Za-z0-9]`).MatchString(left) {
		return unclearf("%q is not understood", left)
	}
	return nil
}

// ladder is the order in which torchtune's table adds one technique to those
// before; the last two rows leave out what they name.
var ladder = []struct {
	step string
	says func(a *asked)
}{
	{"baseline", func(a *asked) { a.unpacked, a.compile = true, "no" }},
	{"packed", func(a *asked) { a.unpacked = false }},
	{"compile", func(a *asked) { a.compile = "yes" }},
	{"chunked cross entropy", func(a *asked) { a.chunked = true }},
	{"activation checkpointing", func(a *asked) { a.recompute = estimate.RecomputeFull }},
	{"optimizer in backward", func(a *asked) { a.inBackward = true }},
	{"activation offload", func(a *asked) { a.offloadActs = true }},
	{"8-bit adamw", func(a *asked) { a.state8 = true }},
}

var (
	stepWords = pattern.Of(`^\+ ?(.*)$`)
	backward  = pattern.Of(`(?i)^(fused?|optimizer).*(backward)`)
)

// climb reads where on the ladder a row is.
func (a *asked) climb() error {
	step := strings.ToLower(a.step)
	a.recompute = estimate.RecomputeNone
	up := func(to int) {
		for _, rung := range ladder[:to+1] {
			rung.says(a)
		}
	}
	switch {
	case strings.HasPrefix(step, "baseline"):
		up(0)
		return nil
	case strings.HasPrefix(step, "lora") || strings.HasPrefix(step, "qlora"):
		up(len(ladder) - 1)
		a.full, a.inBackward, a.state8 = false, false, false
		a.lora, a.qlora = true, strings.HasPrefix(step, "qlora")
		return a.understand(strings.NewReplacer("(same)", "", "(", " ", ")", " ").Replace(step))
	}
	if m := stepWords().FindStringSubmatch(step); m != nil && a.cumulative {
		word := m[1]
		if backward().MatchString(word) {
			word = "optimizer in backward"
		}
		at := slices.IndexFunc(ladder, func(rung struct {
			step string
			says func(a *asked)
		}) bool {
			return strings.HasPrefix(word, rung.step)
		})
		if at >= 0 {
			up(at)
			return nil
		}
	}
	return unclearf("setting step: %q is not understood", a.step)
}
