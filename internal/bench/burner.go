// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Burner is a running burn program (clib/tools/burn.c), which keeps a card busy
// with kernels of one duration until it is killed.
type Burner struct {
	PID     int
	process *exec.Cmd
	input   io.WriteCloser
	ends    bool // by itself
}

// StartBurner starts program, lib/divvy/tools/burn, and waits until it is about
// to launch; Begin lets it. Kill it. pattern is none of several processes; flags are
// more of its own.
func StartBurner(ctx context.Context, program string, env []string, pattern string, kernel time.Duration, flags ...string) (*Burner, error) {
	process := exec.CommandContext(ctx, program,
		append([]string{"--us", strconv.FormatFloat(float64(kernel.Nanoseconds())/1e3, 'f', -1, 64), "--pattern", pattern}, flags...)...)
	process.Env, process.Stderr, process.WaitDelay = env, os.Stderr, 5*time.Second
	input, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start burn: %w", err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start burn: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start burn: %w", err)
	}
	b := &Burner{process: process, input: input}
	line, err := bufio.NewReader(output).ReadString('\n')
	if word, number, _ := strings.Cut(strings.TrimSpace(line), " "); err == nil && word == "ready" {
		b.PID, err = strconv.Atoi(number)
	}
	if err == nil && b.PID == 0 {
		err = fmt.Errorf("unexpected greeting %q", line)
	}
	if err != nil {
		b.Kill()
		return nil, fmt.Errorf("start burn: %w", err)
	}
	return b, nil
}

// Begin lets it launch.
func (b *Burner) Begin() error {
	if _, err := io.WriteString(b.input, "go\n"); err != nil {
		return fmt.Errorf("let burn %d begin: %w", b.PID, err)
	}
	return nil
}

// Signal sends it a signal.
func (b *Burner) Signal(signal syscall.Signal) error {
	if err := b.process.Process.Signal(signal); err != nil {
		return fmt.Errorf("signal burn %d: %w", b.PID, err)
	}
	return nil
}

// Wait waits for one that ends by itself.
func (b *Burner) Wait() error {
	if err := b.process.Wait(); err != nil {
		return fmt.Errorf("burn %d: %w", b.PID, err)
	}
	return nil
}

// Kill ends it and reaps it.
func (b *Burner) Kill() {
	_ = b.process.Process.Kill()
	_ = b.input.Close()
	_ = b.process.Wait()
}
