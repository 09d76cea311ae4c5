// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
)

const (
	agentName    = "agent"       // of the command
	agentProgram = "divvy-agent" // of the tool that does its work
)

// Exporters answer scrapes of an agent.
type Exporters struct{ Metrics, DCGM agent.Exporter }

// AgentMain is Main of divvy-agent, which `divvy agent` becomes: the same command line with that one
// command, linked with a database and a metrics library that would cost every start of divvy 3 ms.
func AgentMain(args []string, stdin io.Reader, stdout, stderr io.Writer, with Exporters) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv}
	return a.main(args, []command{{agentName, func() *cobra.Command {
		return a.agentCommand(func(ctx context.Context, f *agentFlags) error {
			cfg, err := f.config(a)
			if err != nil {
				return err
			}
			cfg.Metrics = with.Metrics
			if f.dcgm {
				cfg.DCGMMetrics = with.DCGM
			}
			return f.run(ctx, cfg)
		})
	}}})
}

// becomeAgent has divvy-agent take this process's place. It returns only when it could not.
func (a *app) becomeAgent(context.Context, *agentFlags) error {
	dir, err := a.libraries()
	if err != nil {
		return err
	}
	program := dir.Tool(agentProgram)
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ()))
}
