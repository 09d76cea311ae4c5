// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrRefused is what a Holder's driver call came to when it failed; CUresult
// says how.
var ErrRefused = errors.New("driver call failed")

// Refused carries the CUresult of a failed call.
type Refused struct {
	Command string
	Result  int
}

func (r *Refused) Error() string { return fmt.Sprintf("%s: CUresult %d", r.Command, r.Result) }

// Is makes errors.Is(err, ErrRefused) true.
func (r *Refused) Is(target error) bool { return target == ErrRefused }

// OutOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const OutOfMemory = 2

// Holder is a running holder program (clib/tools/holder.c), which does with the
// card what it is told. It is used by one goroutine at a time.
type Holder struct {
	PID     int
	process *exec.Cmd
	input   io.WriteCloser
	answers *bufio.Reader
}

// StartHolder starts a holder with the environment env and waits for its
// greeting. Close or Kill it.
func (t Target) StartHolder(ctx context.Context, env []string) (*Holder, error) {
	h, err := t.spawnHolder(ctx, env)
	if err != nil {
		return nil, err
	}
	if err := h.greeting(); err != nil {
		h.Kill()
		return nil, err
	}
	return h, nil
}

// spawnHolder starts a holder without waiting for anything.
func (t Target) spawnHolder(ctx context.Context, env []string) (*Holder, error) {
	process := exec.CommandContext(ctx, filepath.Join(t.ToolsDirectory, "holder"))
	return HolderOf(process, env)
}

// HolderOf starts process, which must become a holder program, and leaves its
// greeting to be read by the first command. The caller owns the rest of the
// command's settings.
func HolderOf(process *exec.Cmd, env []string) (*Holder, error) {
	process.Env = env
	process.Stderr = os.Stderr
	process.WaitDelay = 5 * time.Second
	input, err := process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start holder: %w", err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start holder: %w", err)
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("start holder: %w", err)
	}
	return &Holder{PID: process.Process.Pid, process: process, input: input, answers: bufio.NewReader(output)}, nil
}

func (h *Holder) greeting() error {
	words, err := h.receive()
	if err == nil && (len(words) != 2 || words[0] != "ready") {
		err = fmt.Errorf("unexpected greeting %q", words)
	}
	if err != nil {
		return fmt.Errorf("start holder: %w", err)
	}
	// Below a wrapper the program's own process id is the one that counts.
	h.PID, err = strconv.Atoi(words[1])
	return err
}

// Greeting waits for "ready PID"; after HolderOf and after the command exec.
func (h *Holder) Greeting() error { return h.greeting() }

// Do sends one command and returns the words after "ok"; a failed driver call
// comes as *Refused.
func (h *Holder) Do(format string, arguments ...any) ([]string, error) {
	command := fmt.Sprintf(format, arguments...)
	if err := h.send(command); err != nil {
		return nil, err
	}
	return h.answer(command)
}

func (h *Holder) send(command string) error {
	if _, err := io.WriteString(h.input, command+"\n"); err != nil {
		return fmt.Errorf("tell holder %d %s: %w", h.PID, command, err)
	}
	return nil
}

func (h *Holder) answer(command string) ([]string, error) {
	words, err := h.receive()
	if err != nil {
		return nil, fmt.Errorf("holder %d: %s: %w", h.PID, command, err)
	}
	switch {
	case words[0] == "ok":
		return words[1:], nil
	case words[0] == "error" && len(words) > 1:
		result, err := strconv.Atoi(words[1])
		if err == nil {
			return nil, &Refused{Command: command, Result: result}
		}
	}
	return nil, fmt.Errorf("holder %d: %s: unexpected answer %q", h.PID, command, words)
}

func (h *Holder) receive() ([]string, error) {
	line, err := h.answers.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil, errors.New("empty answer")
	}
	return words, nil
}

// Number sends a command and returns the first word of the answer as a number.
func (h *Holder) Number(format string, arguments ...any) (uint64, error) {
	words, err := h.Do(format, arguments...)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		return 0, fmt.Errorf("holder %d: no number in its answer", h.PID)
	}
	return strconv.ParseUint(words[0], 10, 64)
}

// Numbers is Number for all words.
func (h *Holder) Numbers(format string, arguments ...any) ([]uint64, error) {
	words, err := h.Do(format, arguments...)
	if err != nil {
		return nil, err
	}
	numbers := make([]uint64, len(words))
	for i, word := range words {
		if numbers[i], err = strconv.ParseUint(word, 10, 64); err != nil {
			return nil, fmt.Errorf("holder %d: answer %q: %w", h.PID, words, err)
		}
	}
	return numbers, nil
}

// Kill ends it with SIGKILL and reaps it.
func (h *Holder) Kill() {
	_ = syscall.Kill(h.PID, syscall.SIGKILL)
	_ = h.process.Process.Kill()
	h.reap()
}

func (h *Holder) reap() {
	_ = h.input.Close()
	_ = h.process.Wait()
}
