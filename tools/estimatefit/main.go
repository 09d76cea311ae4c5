// SPDX-License-Identifier: Apache-2.0

// Command estimatefit sets the constants of internal/estimate from the rows of
// data/llm-reference.yaml that each names, and shows what they would be without
// each source and each model: how much the estimates owe to single rows.
//
//	go run ./tools/estimatefit             # the constants, their spread
//	go run ./tools/estimatefit -validate   # leave out sources and models in turn
package main

import (
	"flag"
	"fmt"
	"math"
	"os"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/check"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

func main() {
	validate := flag.Bool("validate", false, "leave out each source and each model in turn")
	flag.Parse()
	if err := run(*validate); err != nil {
		fmt.Fprintln(os.Stderr, "estimatefit:", err)
		os.Exit(1)
	}
}

func run(validate bool) error {
	file, err := reference.Default()
	if err != nil {
		return err
	}
	f, err := check.NewFit(file)
	if err != nil {
		return err
	}
	k := f.Set(estimate.Default(), nil)
	if validate {
		show("source", f.Validate(k, func(r *reference.Row) string { return r.Source }), &k)
		show("model", f.Validate(k, func(r *reference.Row) string { return r.Model }), &k)
		return nil
	}
	for i, c := range k {
		alone := f.Alone(k, i)
		low, high := math.NaN(), math.NaN()
		if len(alone) > 0 {
			low, high = alone[len(alone)/10], alone[len(alone)-1-len(alone)/10]
		}
		fmt.Printf("%-10s %9.4g (committed %.4g); eight of ten rows alone: %.4g to %.4g; its %d rows are missed by %.1f %%\n",
			c.Name, c.Mid, estimate.Default()[i].Mid, low, high, len(c.Rows), 100*f.Cost(&k, i, nil))
	}
	return nil
}

func show(by string, groups []check.LeftOut, all *estimate.Constants) {
	var with, without []float64
	for _, g := range groups {
		fmt.Printf("without %s %-18s %2d rows: median error %5.1f %%, was %5.1f %%;", by, g.Name, len(g.With), check.Median(g.Without), check.Median(g.With))
		for i := range g.Constants {
			if g.Constants[i].Mid != all[i].Mid {
				fmt.Printf(" %s %.3g", g.Constants[i].Name, g.Constants[i].Mid)
			}
		}
		fmt.Println()
		with, without = append(with, g.With...), append(without, g.Without...)
	}
	fmt.Printf("by %s: %d rows, median error %.1f %% with constants set without them, %.1f %% with all\n\n", by, len(with), check.Median(without), check.Median(with))
}
