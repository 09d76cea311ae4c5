// SPDX-License-Identifier: Apache-2.0

package estimate

import "strings"

// Optimizer is what training keeps for each parameter, in bytes, beside a
// weight of 16 bits. With weights of 32 bits there is no copy of them.
type Optimizer struct {
	Name     string
	gradient float64
	state    float64 // all of it
	master   float64 // of state: the copy of the weights in 32 bits
	paged    bool    // kept by unified memory, out on the host when room is short
	what     string
}

var optimizers = []Optimizer{
	{"adamw", 2, 12, 4, false, "mixed precision: a copy of the weights and two moments in 32 bits"},
	{"adamw-fp32-grads", 4, 12, 4, false, "the same, gradients summed in 32 bits"},
	{"adamw-bf16", 2, 4, 0, false, "all in 16 bits"},
	{"adamw-8bit", 2, 2.03, 0, false, "two moments in 8 bits with block scales, no copy of the weights"},
	{"adamw-8bit-paged", 2, 2.03, 0, true, "the same in unified memory, on the host while room is short"},
	{"sgd", 2, 4, 4, false, "a copy of the weights"},
	{"sgd-momentum", 2, 8, 4, false, "a copy of the weights and one moment"},
	{"adafactor", 2, 0, 0, false, "rows and columns of the second moment only"},
}

// Optimizers lists the names.
func Optimizers() []string {
	var names []string
	for _, o := range optimizers {
		names = append(names, o.Name)
	}
	return names
}

// OptimizerNamed finds an optimizer.
func OptimizerNamed(name string) (Optimizer, error) {
	for _, o := range optimizers {
		if o.Name == strings.ToLower(name) {
			return o, nil
		}
	}
	return Optimizer{}, invalidf("optimizer %q is none of %s", name, strings.Join(Optimizers(), ", "))
}

// ofFP32 is the same with weights of 32 bits.
func (o Optimizer) ofFP32() Optimizer {
	o.gradient, o.state, o.master = 4, o.state-o.master, 0
	if o.Name == "adamw-bf16" {
		o.state = 8
	}
	return o
}

// States is what the weights, gradients and optimizer states of params take on
// each of n cards, of which ZeRO's stage shares some.
func (o Optimizer) States(params, weight float64, stage int, n float64) (weights, gradients, states float64) {
	weights, gradients, states = params*weight, params*o.gradient, params*o.state
	if stage >= 1 {
		states /= n
	}
	if stage >= 2 {
		gradients /= n
	}
	if stage >= 3 {
		weights /= n
	}
	return weights, gradients, states
}
