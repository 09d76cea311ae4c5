// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
)

//go:embed weights.json
var weightsJSON []byte

// layer is one dense layer: outputs = len(Bias), Weights by output.
type layer struct {
	Inputs  int       `json:"inputs"`
	Weights []float32 `json:"weights"`
	Bias    []float32 `json:"bias"`
}

// network is the trained model, made by train.py.
type network struct {
	Layers []layer `json:"layers"`
}

func readNetwork() (network, error) {
	var n network
	if err := json.Unmarshal(weightsJSON, &n); err != nil {
		return n, fmt.Errorf("read weights.json: %w", err)
	}
	inputs := Pixels
	for i, l := range n.Layers {
		if l.Inputs != inputs || len(l.Bias) == 0 || len(l.Weights) != l.Inputs*len(l.Bias) {
			return n, fmt.Errorf("weights.json: layer %d has the wrong shape", i)
		}
		inputs = len(l.Bias)
	}
	if inputs != Classes {
		return n, fmt.Errorf("weights.json: %d classes, not %d", inputs, Classes)
	}
	return n, nil
}

// cpu is what the card should answer: the same sums in float64.
func (n network) cpu(image Image) Probabilities {
	values := make([]float64, 0, Pixels)
	for _, p := range image {
		values = append(values, float64(p))
	}
	for i, l := range n.Layers {
		next := make([]float64, len(l.Bias))
		for o := range next {
			sum := float64(l.Bias[o])
			for k, v := range values {
				sum += v * float64(l.Weights[o*l.Inputs+k])
			}
			if i < len(n.Layers)-1 {
				sum = max(sum, 0)
			}
			next[o] = sum
		}
		values = next
	}
	most, sum := values[0], 0.0
	for _, v := range values {
		most = max(most, v)
	}
	var result Probabilities
	for _, v := range values {
		sum += math.Exp(v - most)
	}
	for i, v := range values {
		result[i] = float32(math.Exp(v-most) / sum)
	}
	return result
}
