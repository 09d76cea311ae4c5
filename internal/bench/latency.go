// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// probe is a running latency program (clib/tools/latency.c).
type probe struct {
	process *exec.Cmd
	output  *bufio.Reader
	begin   func() error
}

// probe starts one that launches kernels now and then, count times, and waits
// until it is about to begin. A kernel of 0 measures the host's own wake-ups.
func (t Target) probe(ctx context.Context, env []string, kernel, every time.Duration, count int) (*probe, error) {
	micros := func(d time.Duration) string { return strconv.FormatFloat(float64(d.Nanoseconds())/1e3, 'f', -1, 64) }
	arguments := []string{"--every-us", micros(every), "--count", strconv.Itoa(count)}
	if kernel == 0 {
		arguments = append(arguments, "--futex")
	} else {
		arguments = append(arguments, "--us", micros(kernel))
	}
	process := exec.CommandContext(ctx, filepath.Join(t.ToolsDirectory, "latency"), arguments...)
	process.Env, process.Stderr, process.WaitDelay = env, os.Stderr, 5*time.Second
	input, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start latency: %w", err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start latency: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start latency: %w", err)
	}
	p := &probe{process: process, output: bufio.NewReader(output), begin: input.Close}
	if line, err := p.output.ReadString('\n'); err != nil || len(line) < len("ready 1") {
		p.kill()
		return nil, fmt.Errorf("start latency: greeting %q: %w", line, errors.Join(err, ctx.Err()))
	}
	return p, nil
}

// latencies lets it run, and returns how long each launch took beyond its
// kernel, and the time that all of it took.
func (p *probe) latencies() ([]time.Duration, time.Duration, error) {
	begun, err := now()
	if err != nil {
		return nil, 0, err
	}
	if err := p.begin(); err != nil {
		return nil, 0, fmt.Errorf("begin latency: %w", err)
	}
	var report struct {
		KernelNs  int64   `json:"kernelNs"`
		LatencyNs []int64 `json:"latencyNs"`
	}
	if err := json.NewDecoder(p.output).Decode(&report); err != nil {
		p.kill()
		return nil, 0, fmt.Errorf("read what latency says: %w", err)
	}
	ended, err := now()
	if err != nil {
		return nil, 0, err
	}
	if err := p.process.Wait(); err != nil {
		return nil, 0, fmt.Errorf("latency: %w", err)
	}
	all := make([]time.Duration, 0, len(report.LatencyNs))
	for _, ns := range report.LatencyNs {
		all = append(all, time.Duration(max(ns-report.KernelNs, 0)))
	}
	return all, ended - begun, nil
}

func (p *probe) kill() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}
