// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// SchemaRaces names the version of RacesReport.
const SchemaRaces = "divvy.bench.races/v1"

// RacesOptions says how to race for the last room of a share.
type RacesOptions struct {
	Target
	Rounds int
	Racers int    // processes; 0: two
	Bytes  uint64 // that each asks for; 0: 2 MiB
	Unheld bool   // the control: without the front everybody wins
}

// RacesReport says how often how many racers got the last room.
type RacesReport struct {
	Schema    string  `json:"schema"`
	Simulated bool    `json:"simulated"`
	Racers    int     `json:"racers"`
	Rounds    int     `json:"rounds"`
	None      int     `json:"none"`
	One       int     `json:"one"`
	More      int     `json:"more"`
	Errors    int     `json:"errors"`
	Seconds   float64 `json:"seconds"`
}

// Races lets processes of one share ask for its last room at the same moment,
// again and again. Exactly one must get it each time.
func Races(ctx context.Context, o RacesOptions) (RacesReport, error) {
	report := RacesReport{Schema: SchemaRaces, Simulated: true}
	if err := o.Validate(); err != nil {
		return report, err
	}
	if o.Racers == 0 {
		o.Racers = 2
	}
	if o.Bytes == 0 {
		o.Bytes = 2 * mib
	}
	if o.Rounds < 1 || o.Racers < 2 || o.Racers > 64 {
		return report, fmt.Errorf("%d rounds of %d racers make no race", o.Rounds, o.Racers)
	}
	devices, err := o.client().Devices(ctx)
	if err != nil {
		return report, err
	}
	if len(devices.Cards) == 0 {
		return report, errors.New("the agent has no GPU")
	}
	// Room for the contexts, for one winner, and for less than one more.
	quota := uint64(o.Racers)*devices.Cards[0].ContextBytes + o.Bytes + o.Bytes/2
	quota = (quota + mib - 1) / mib * mib
	if spare := quota - uint64(o.Racers)*devices.Cards[0].ContextBytes; spare >= 2*o.Bytes {
		return report, fmt.Errorf("a race for %d bytes leaves room for two winners in whole MiB", o.Bytes)
	}
	share, remove, err := o.share(ctx, "bench-races", quota)
	if err != nil {
		return report, err
	}
	defer remove()
	env := o.Environ(share.Socket)
	if o.Unheld {
		env = o.Target.Unheld()
	}
	start := time.Now()
	line, err := race(ctx, o, env)
	if err != nil {
		return report, err
	}
	report.Seconds = time.Since(start).Seconds()
	report.Racers = o.Racers
	_, err = fmt.Sscanf(line, "rounds %d none %d one %d more %d errors %d",
		&report.Rounds, &report.None, &report.One, &report.More, &report.Errors)
	if err != nil {
		return report, fmt.Errorf("read the result %q: %w", line, err)
	}
	return report, nil
}

// race runs the racers and returns the line that the first one prints.
func race(ctx context.Context, o RacesOptions, env []string) (string, error) {
	board, err := os.CreateTemp("", "divvy-race-")
	if err != nil {
		return "", fmt.Errorf("make the racers' board: %w", err)
	}
	defer os.Remove(board.Name())
	defer board.Close()
	if err := board.Truncate(4096); err != nil {
		return "", fmt.Errorf("make the racers' board: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	racers := make([]*exec.Cmd, o.Racers)
	outputs := make([]bytes.Buffer, o.Racers)
	problems := make([]bytes.Buffer, o.Racers)
	ended := make(chan error, o.Racers)
	started := 0
	var errs []error
	for i := range racers {
		racers[i] = exec.CommandContext(ctx, filepath.Join(o.ToolsDirectory, "racer"), board.Name(), strconv.Itoa(i),
			strconv.Itoa(o.Racers), strconv.Itoa(o.Rounds), strconv.FormatUint(o.Bytes, 10))
		racers[i].Env, racers[i].Stdout, racers[i].Stderr = env, &outputs[i], &problems[i]
		if err := racers[i].Start(); err != nil {
			errs = append(errs, fmt.Errorf("start racer %d: %w", i, err))
			cancel()
			break
		}
		started++
		go func() { ended <- racers[i].Wait() }()
	}
	for range started {
		if err := <-ended; err != nil {
			errs = append(errs, err)
			cancel() // the others would wait for it
		}
	}
	if len(errs) > 0 {
		for i := range problems {
			if text := strings.TrimSpace(problems[i].String()); text != "" {
				errs = append(errs, errors.New(text))
			}
		}
		return "", fmt.Errorf("race: %w", errors.Join(errs...))
	}
	return strings.TrimSpace(outputs[0].String()), nil
}
