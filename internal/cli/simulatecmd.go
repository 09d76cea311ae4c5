// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/size"
	"github.com/divvy-gpu/divvy/internal/urgency"
)

// How much of a processor daemons may use and still go before other processes: a
// flood of requests must not keep a machine from its other work.
const urgentPercent = 50

// privateIdle is how long the daemons of divvy run wait for somebody.
const privateIdle = 5 * time.Second

func (a *app) simulateCommand() *cobra.Command {
	cfg := simgpu.Config{}
	var asPrivate bool
	var hostMemory, profiles string
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Run simulated GPUs in the foreground",
		Long: `Runs the simulator behind the stand-in driver (lib/divvy/standin): the GPUs,
their capacity and who holds what. divvy run --simulate starts one by itself.`,
		Example: `  divvy simulate --gpus 2xA100-40GB,L4 --socket /tmp/simulator.sock
  divvy simulate --gpus 8xH100-80GB --topology dgx`,
		Args: noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if cfg.Socket == "" {
			cfg.Socket = filepath.Join(a.privateRoot().Path(), "simulator.sock")
			if err := a.privateRoot().Create(); err != nil {
				return err
			}
		}
		if hostMemory != "" {
			bytes, err := size.Parse(hostMemory)
			if err != nil {
				return usage(fmt.Errorf("--host-memory: %w", err))
			}
			cfg.HostBudgetBytes = bytes
		}
		if profiles != "" {
			raw, err := a.readBounded(profiles)
			if err != nil {
				return err
			}
			if cfg.MIG, err = mig.Parse(raw); err != nil {
				return usage(fmt.Errorf("--mig-profiles: %w", err))
			}
		}
		cfg.Urgency = urgency.New(urgentPercent)
		cfg.Log = slog.New(slog.NewTextHandler(a.stderr, nil))
		if asPrivate {
			closeInherited()
			cfg.IdleExit, cfg.SocketMode = privateIdle, 0o600
		}
		if err := cfg.Validate(); err != nil {
			return usage(err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		server, err := simgpu.Listen(cfg)
		if err != nil {
			return err
		}
		if !asPrivate {
			fmt.Fprintf(a.stdout, "simulating %s behind %s\n", cfg.Cards, cfg.Socket)
		}
		return server.Serve(ctx)
	})
	flags := cmd.Flags()
	flags.StringVar(&cfg.Cards, "gpus", silicon.DefaultSpec, "`GPUs`, like 2xA100-40GB or H100-80GB,L4")
	flags.StringVar(&cfg.Topology, "topology", silicon.Topologies()[0], "`name`: "+strings.Join(silicon.Topologies(), ", "))
	flags.StringVar(&cfg.Driver, "driver", simgpu.DefaultDriver, "CUDA `version` to play: 11.8, 12.2, 13.0 or 13.1")
	flags.StringVar(&cfg.Socket, "socket", "", "`path` to listen on (default: simulator.sock in your private folder)")
	flags.StringVar(&hostMemory, "host-memory", "", "`size` of host memory to use; default: half of what is available")
	flags.StringVar(&profiles, "mig-profiles", "", "`file` like data/mig-profiles.yaml: a driver with other profiles")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "`number` that the GPUs' UUIDs depend on")
	flags.BoolVar(&cfg.PlainNames, "plain-names", false, "leave out \"(simulated)\" behind the GPUs' names")
	flags.BoolVar(&asPrivate, "private", false, "be the simulator of a private agent")
	hide(cmd, "private")
	complete(cmd, "gpus", a.completeModels)
	formerly(cmd, "cards", "gpus")
	complete(cmd, "mig-profiles", fileCompletion)
	complete(cmd, "topology", words(silicon.Topologies()...))
	complete(cmd, "driver", words("11.8", "12.2", "13.0", "13.1"))
	cmd.AddCommand(a.faultCommand())
	return cmd
}

// completeModels completes the last model of a list of cards.
func (a *app) completeModels(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before, last := "", typed
	if comma := strings.LastIndex(typed, ","); comma >= 0 {
		before, last = typed[:comma+1], typed[comma+1:]
	}
	var list []string
	for _, model := range silicon.Models() {
		list = append(list, model.Key)
	}
	found := startingWith(last, list)
	for i := range found {
		found[i] = before + found[i]
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
