// SPDX-License-Identifier: Apache-2.0

// Package bench measures how Divvy keeps its promises under load: races for the
// last room, memory of killed clients, an agent that dies under its clients,
// many processes that attach at once. It starts load programs (clib/tools)
// under shares of an agent that somebody else has started, and compares what
// they saw with the simulator's own account. It starts no daemon and prints
// nothing.
//
//	report, err := bench.Recovery(ctx, bench.RecoveryOptions{Target: target, Rounds: 100})
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/lateness"
)

// Bytes in a mebibyte, the unit of quotas.
const mib = 1 << 20

// Target is a running agent over simulated cards, and the files of a build.
type Target struct {
	AgentSocket     string
	SimulatorSocket string
	DriverDirectory string // the stand-in driver that the agent looks after
	FrontDirectory  string // the front library prepared for it
	ToolsDirectory  string // the load programs
	// SlowHost is what the programs, and the agent, play to run on; nil: the host is
	// what it is.
	SlowHost *lateness.Profile
}

// Validate says what is missing.
func (t Target) Validate() error {
	var errs []error
	for _, f := range []struct{ name, path string }{
		{"agent socket", t.AgentSocket},
		{"simulator socket", t.SimulatorSocket},
		{"driver directory", t.DriverDirectory},
		{"front directory", t.FrontDirectory},
		{"tools directory", t.ToolsDirectory},
	} {
		if !filepath.IsAbs(f.path) {
			errs = append(errs, fmt.Errorf("%s %q is not an absolute path", f.name, f.path))
		}
	}
	return errors.Join(errs...)
}

// Environ is the environment of a process under the share that listens on
// socket, as divvy run sets it.
func (t Target) Environ(socket string) []string {
	preload := filepath.Join(t.FrontDirectory, "libcuda.so.1")
	if t.SlowHost != nil {
		preload += ":" + t.slowHost()
	}
	return append(t.Bare(),
		"LD_LIBRARY_PATH="+t.FrontDirectory,
		"LD_PRELOAD="+preload,
		"DIVVY_SOCKET="+socket,
		"DIVVY_DRIVER_DIR="+t.DriverDirectory,
	)
}

// Unheld is the environment of a process that uses the cards without Divvy: the
// control of every figure.
func (t Target) Unheld() []string {
	env := append(t.Bare(), "LD_LIBRARY_PATH="+t.DriverDirectory)
	if t.SlowHost != nil {
		env = append(env, "LD_PRELOAD="+t.slowHost())
	}
	return env
}

// slowHost is the library that makes a program's threads wake late.
func (t Target) slowHost() string { return filepath.Join(t.ToolsDirectory, "slowhost.so") }

// Bare is the environment that both have in common.
func (t Target) Bare() []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"DIVVY_SIMULATOR=" + t.SimulatorSocket,
	}
	if t.SlowHost != nil {
		env = append(env, t.SlowHost.Environ())
	}
	return env
}

func (t Target) burn() string { return filepath.Join(t.ToolsDirectory, "burn") }

func (t Target) client() *client.Client { return client.New(t.AgentSocket) }

// share makes a share for one measurement; the returned function removes it.
func (t Target) share(ctx context.Context, name string, bytes uint64) (api.Share, func(), error) {
	c := t.client()
	share, err := c.CreateShare(ctx, api.ShareSpec{Name: name, MemoryBytes: bytes})
	if err != nil {
		return share, nil, fmt.Errorf("create share %s: %w", name, err)
	}
	return share, func() { _ = c.DeleteShare(context.WithoutCancel(ctx), name, true) }, nil
}

// Quantiles are two points of a distribution, in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	sorted := slices.Sorted(slices.Values(all))
	at := func(percent int) float64 {
		return milliseconds(sorted[(len(sorted)*percent+99)/100-1])
	}
	return Quantiles{P50: at(50), P99: at(99)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// now is CLOCK_MONOTONIC, the clock of the load programs and of the simulator.
func now() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
