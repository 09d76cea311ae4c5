// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/lateness"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
)

// session is a simulator and an agent of our own, for a demo or a bench, and
// what programs need to come under it.
type session struct {
	root     private.Root
	endpoint private.Endpoint
	client   *client.Client
	front    string // empty when it is not there, where the caller can do without
	dir      library.Dir
	host     *lateness.Profile // that it plays to be; nil: the one that it is
}

// ownSession starts both. The null driver needs no simulator: its cards are "".
func (a *app) ownSession(ctx context.Context, cards, driver string) (*session, error) {
	s, err := a.bareSession(ctx, cards, driver)
	if err == nil && s.front == "" {
		s.end(ctx)
		err = fmt.Errorf("%w: no front/%s in %s", library.ErrNotFound, library.CUDAName, s.dir)
	}
	return s, err
}

// bareSession does so even when there is no front.
func (a *app) bareSession(ctx context.Context, cards, driver string) (*session, error) {
	s := &session{root: a.privateRoot()}
	var err error
	if a.host != "" {
		host, err := lateness.Parse(a.host)
		if err != nil {
			return nil, usage(fmt.Errorf("--slow-host: %w", err))
		}
		s.host = &host
	}
	if s.dir, err = a.libraries(); err != nil {
		return nil, err
	}
	spec := private.Spec{Cards: cards, Driver: driver, Overlap: a.overlap, SlowHost: a.host, Instance: strconv.Itoa(os.Getpid()) + "." + strconv.FormatInt(time.Now().UnixNano(), 36)}
	if cards == "" {
		spec.Driver, spec.DriverDirectory = "", s.dir.Null()
	} else if spec.DriverDirectory, err = s.dir.Standin(driver); err != nil {
		return nil, err
	}
	if s.dir.HasFront() {
		if s.front, err = a.frontFor(spec.DriverDirectory); err != nil {
			return nil, err
		}
	}
	program, err := self()
	if err != nil {
		return nil, err
	}
	if s.endpoint, err = s.root.Ensure(ctx, program, spec); err != nil {
		return nil, err
	}
	s.client = client.New(s.endpoint.AgentSocket)
	return s, nil
}

// end stops the daemons and removes their folder.
func (s *session) end(ctx context.Context) {
	_ = s.root.Remove(context.WithoutCancel(ctx), s.endpoint)
}

func (s *session) tool(name string) string { return s.dir.Tool(name) }

// target is the same, as benches take it.
func (s *session) target() bench.Target {
	return bench.Target{
		AgentSocket:     s.endpoint.AgentSocket,
		SimulatorSocket: s.endpoint.SimulatorSocket,
		DriverDirectory: s.endpoint.DriverDirectory,
		FrontDirectory:  s.front,
		ToolsDirectory:  filepath.Dir(s.tool("holder")),
		SlowHost:        s.host,
	}
}

// slowHostFlag lets a command play to run on a slow host.
func (a *app) slowHostFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.host, "slow-host", "", "play a `host` that wakes threads late")
	cmd.Flags().Lookup("slow-host").NoOptDefVal = "slow"
	complete(cmd, "slow-host", words("slow"))
}
