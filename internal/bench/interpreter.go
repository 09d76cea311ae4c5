// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// SchemaInterpreter names the version of InterpreterReport.
const SchemaInterpreter = "divvy.bench.interpreter/v1"

// InterpreterOptions says how to measure how fast a simulated card computes.
type InterpreterOptions struct {
	Target Target
	Rounds int
}

// InterpreterReport is what one core of the host does for the simulated card,
// and how long the host takes for a multiplication of matrices.
type InterpreterReport struct {
	Schema                    string           `json:"schema"`
	Simulated                 bool             `json:"simulated"`
	Rounds                    int              `json:"rounds"`
	ThreadInstrMPerSecPerCore InterpreterSpeed `json:"threadInstrMPerSecPerCore"`
	Matmul512Ms               float64          `json:"matmul512Ms"`
}

// InterpreterSpeed is in millions of instructions of one thread per second of
// one core: where lanes of a warp go together, and where each goes alone.
type InterpreterSpeed struct {
	Converged float64 `json:"converged"`
	Divergent float64 `json:"divergent"`
}

// Interpreter measures: medians of the speeds, which are of processor time, and
// the least time of the multiplication, which others on the host lengthen.
func Interpreter(ctx context.Context, o InterpreterOptions) (InterpreterReport, error) {
	report := InterpreterReport{Schema: SchemaInterpreter, Simulated: true, Rounds: o.Rounds}
	if o.Rounds < 1 {
		return report, fmt.Errorf("%d rounds are too few: at least 1", o.Rounds)
	}
	program := exec.CommandContext(ctx, filepath.Join(o.Target.ToolsDirectory, "interpreter"), strconv.Itoa(o.Rounds))
	program.Env = o.Target.Unheld()
	var errors strings.Builder
	program.Stderr = &errors
	output, err := program.Output()
	if err != nil {
		return report, fmt.Errorf("run %s: %w: %s", program.Path, err, strings.TrimSpace(errors.String()))
	}
	var series [3][]float64
	for line := range strings.Lines(string(output)) {
		var values [3]float64
		if _, err := fmt.Sscan(line, &values[0], &values[1], &values[2]); err != nil {
			return report, fmt.Errorf("read a round %q: %w", line, err)
		}
		for i, v := range values {
			series[i] = append(series[i], v)
		}
	}
	if len(series[0]) != o.Rounds {
		return report, fmt.Errorf("%s measured %d rounds of %d", program.Path, len(series[0]), o.Rounds)
	}
	for i := range series {
		slices.Sort(series[i])
	}
	report.ThreadInstrMPerSecPerCore = InterpreterSpeed{Converged: series[0][o.Rounds/2], Divergent: series[1][o.Rounds/2]}
	report.Matmul512Ms = series[2][0]
	return report, nil
}
