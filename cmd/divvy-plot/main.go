// SPDX-License-Identifier: Apache-2.0

// Command divvy-plot draws what `divvy plan` computed: charts as JSON in, drawings as JSON
// out.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/internal/plan/chart"
	"github.com/divvy-gpu/divvy/internal/plan/chart/draw"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "divvy-plot:", err)
		os.Exit(1)
	}
}

func run() error {
	var order chart.Order
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return fmt.Errorf("read charts: %w; divvy plan --plots calls this program", err)
	}
	drawn, err := draw.All(order)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(drawn)
}
