// SPDX-License-Identifier: Apache-2.0

// Package agent is the node daemon. One goroutine owns a pure core
// (internal/core); adapters around it feed it with what happens on share
// sockets, the HTTP interface, the driver and the clock, and carry out its
// orders. It decides nothing about memory itself and never runs in the process
// of a user's program.
package agent

import (
	"context"
	"errors"
)

// ErrIdle is what Run returns when the agent left because nobody needed it.
var ErrIdle = errors.New("agent idle")

// Run serves until ctx ends (nil) or the agent has been idle for
// cfg.IdleExit (ErrIdle). It uses descriptors that a supervisor keeps for it,
// if there is one.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return errors.New("agent: not there yet")
}

// Supervise keeps a worker running: argv is the command of a process that ends
// in Run with the same configuration. The listening sockets live here, so a
// worker that dies loses no connection. It returns when ctx has ended and the
// worker with it, when the worker left idle (ErrIdle), or when the worker
// cannot be started.
func Supervise(ctx context.Context, cfg Config, argv ...string) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return errors.New("supervisor: not there yet")
}
