// SPDX-License-Identifier: Apache-2.0

package estimate

import "strings"

// compute classes: which of a card's rates a format multiplies at.
type class int

const (
	class32 class = iota
	class16
	class8
	class4
)

// outsideOf is the class of what is not quantised: attention, the head.
func outsideOf(k class) class {
	if k == class32 {
		return class32
	}
	return class16
}

// Format is how numbers are kept.
type Format struct {
	Name  string
	bytes float64 // of a parameter in the matrices inside the layers
	// rest is what everything else takes: embeddings, the head, norms.
	rest  float64
	class class
	kv    float64 // bytes of a cached number, where nothing else is said
	what  string
}

// formats are the known ones. Bits beside the values are those of scales, as
// their makers give them: docs/estimate.md, "Bytes of a parameter".
var formats = []Format{
	{"fp32", 4, 4, class32, 4, "32 bits"},
	{"bf16", 2, 2, class16, 2, "16 bits"},
	{"fp16", 2, 2, class16, 2, "16 bits"},
	{"fp8", 1, 2, class8, 1, "8 bits in the layers, multiplied as such; 16 bits outside"},
	{"int8", 1, 2, class16, 2, "8 bits in the layers, multiplied in 16; 16 bits outside"},
	{"fp4", 4.5 / 8, 2, class4, 1, "NVFP4: 4 bits and a scale of 8 for 16 values in the layers"},
	{"mxfp4", 4.25 / 8, 2, class4, 1, "4 bits and a scale of 8 for 32 values in the layers"},
	{"nf4", 4.127 / 8, 2, class16, 2, "4 bits, scales quantised twice, in the layers; multiplied in 16"},
	{"int4", 4.25 / 8, 2, class16, 2, "GPTQ and AWQ in groups of 128 in the layers; multiplied in 16"},
}

// formatAliases are other names.
var formatAliases = map[string]string{
	"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "amp_bf16": "bf16", "amp_fp16": "fp16",
	"nvfp4": "fp4", "gptq": "int4", "awq": "int4", "float8": "fp8", "e4m3": "fp8", "fp8_e4m3": "fp8", "w8a16": "int8", "w4a16": "int4", "4bit": "int4", "8bit": "int8",
}

// Formats lists the names.
func Formats() []string {
	var names []string
	for _, f := range formats {
		names = append(names, f.Name)
	}
	return names
}

// FormatNamed finds a format.
func FormatNamed(name string) (Format, error) {
	wanted := strings.ToLower(name)
	if alias, ok := formatAliases[wanted]; ok {
		wanted = alias
	}
	for _, f := range formats {
		if f.Name == wanted {
			return f, nil
		}
	}
	return Format{}, invalidf("precision %q is none of %s", name, strings.Join(Formats(), ", "))
}

// WeightBytes is what a model's weights take.
func (f Format) WeightBytes(m *Model) float64 {
	total := float64(m.Total())
	if m.Arch == nil || f.bytes == f.rest {
		return total * f.bytes
	}
	linear := min(float64(m.Arch.parameters().linear()), total)
	return linear*f.bytes + (total-linear)*f.rest
}

// weightOnly says that it is narrow in memory and multiplied in 16 bits.
func (f Format) weightOnly() bool { return f.class == class16 && f.bytes < 2 }

// KVBytes is what it keeps a cached number in.
func (f Format) KVBytes() float64 { return f.kv }
