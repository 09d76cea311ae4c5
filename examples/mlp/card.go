// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"runtime"
)

//go:embed mlp.ptx
var defaultPTX string

const (
	// batchMost is how many images go through the network in one launch.
	batchMost = 64
	// waitingMost is how many may wait for that; a caller beyond it waits to wait.
	waitingMost = 1024
)

// card runs the network on the GPU. One goroutine, locked to its thread, owns
// the driver's context; others hand it images through a channel, and what has
// come meanwhile goes through in one batch.
type card struct {
	Name  string
	jobs  chan job
	ready chan error
}

type job struct {
	image  Image
	answer chan answer // holds one: the owner never waits
}

type answer struct {
	probabilities Probabilities
	batch         int
	err           error
}

// startCard makes a context and loads the network; it ends with ctx.
func startCard(ctx context.Context, model network, ptx string) (*card, error) {
	c := &card{jobs: make(chan job, waitingMost), ready: make(chan error, 1)}
	go c.own(ctx, model, ptx)
	return c, <-c.ready
}

// classify waits for its turn.
func (c *card) classify(ctx context.Context, image Image) (answer, error) {
	j := job{image: image, answer: make(chan answer, 1)}
	select {
	case c.jobs <- j:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	select {
	case a := <-j.answer:
		return a, a.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

func (c *card) own(ctx context.Context, model network, ptx string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loaded, name, err := load(model, ptx)
	c.Name = name
	c.ready <- err
	if err != nil {
		return
	}
	for {
		var batch []job
		select {
		case <-ctx.Done():
			return
		case j := <-c.jobs:
			batch = append(batch, j)
		}
	more:
		for len(batch) < batchMost {
			select {
			case j := <-c.jobs:
				batch = append(batch, j)
			default:
				break more
			}
		}
		images := make([]Image, len(batch))
		for i, j := range batch {
			images[i] = j.image
		}
		results, err := loaded.run(images)
		for i, j := range batch {
			a := answer{batch: len(batch), err: err}
			if err == nil {
				a.probabilities = results[i]
			}
			j.answer <- a
		}
	}
}

// loaded is the network on the card.
type loaded struct {
	driver         *driver
	dense, softmax uintptr
	layers         []cardLayer
	images         uint64 // device memory for a batch
}

type cardLayer struct {
	weights, bias, to uint64
	inputs, outputs   uint32
	hidden            uint32
}

func load(model network, ptx string) (*loaded, string, error) {
	d, err := openDriver()
	if err != nil {
		return nil, "", err
	}
	name, err := d.start()
	if err != nil {
		return nil, name, err
	}
	kernels, err := d.kernels(ptx, "dense", "softmax")
	if err != nil {
		return nil, name, err
	}
	l := &loaded{driver: d, dense: kernels[0], softmax: kernels[1]}
	if l.images, err = d.allocate(batchMost * Pixels); err != nil {
		return nil, name, err
	}
	for i, from := range model.Layers {
		to := cardLayer{inputs: uint32(from.Inputs), outputs: uint32(len(from.Bias))}
		if i < len(model.Layers)-1 {
			to.hidden = 1
		}
		if to.to, err = d.allocate(batchMost * len(from.Bias)); err != nil {
			return nil, name, err
		}
		for _, part := range []struct {
			place  *uint64
			values []float32
		}{{&to.weights, from.Weights}, {&to.bias, from.Bias}} {
			if *part.place, err = d.allocate(len(part.values)); err != nil {
				return nil, name, err
			}
			if err := d.write(*part.place, part.values); err != nil {
				return nil, name, err
			}
		}
		l.layers = append(l.layers, to)
	}
	return l, name, nil
}

// run takes a batch through the network.
func (l *loaded) run(images []Image) ([]Probabilities, error) {
	const threads = 128
	if len(images) == 0 || len(images) > batchMost {
		return nil, fmt.Errorf("a batch of %d images", len(images))
	}
	input := make([]float32, 0, len(images)*Pixels)
	for _, image := range images {
		input = append(input, image[:]...)
	}
	if err := l.driver.write(l.images, input); err != nil {
		return nil, err
	}
	from, items := l.images, uint32(len(images))
	for i := range l.layers {
		next := l.layers[i]
		count := int(items * next.outputs)
		if err := l.driver.launch(l.dense, (count+threads-1)/threads, threads, &from, &next.weights, &next.bias, &next.to,
			&items, &next.inputs, &next.outputs, &next.hidden); err != nil {
			return nil, err
		}
		from = next.to
	}
	classes := uint32(Classes)
	if err := l.driver.launch(l.softmax, len(images), 32, &from, &classes); err != nil {
		return nil, err
	}
	output := make([]float32, len(images)*Classes)
	if err := l.driver.read(output, from); err != nil { // waits for the kernels
		return nil, err
	}
	results := make([]Probabilities, len(images))
	for i := range results {
		copy(results[i][:], output[i*Classes:])
	}
	return results, nil
}
