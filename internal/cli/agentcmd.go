// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/lateness"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/size"
	"github.com/divvy-gpu/divvy/internal/urgency"
)

// agentFlags are the flags of `divvy agent`.
type agentFlags struct {
	directory string
	journal   string
	driver    string
	simulator string
	creation  string
	priority  []string
	commands  string
	private   string
	cdi       string
	health    string
	trace     string
	size      string // of the history
	days      int
	operators string
	audit     string
	auditSize string
	dcgm      bool
	quantum   time.Duration
	backlog   time.Duration
	host      string
	overlap   bool
	worker    bool
}

// agentCommand is `divvy agent`, of which run is what its flags are for.
func (a *app) agentCommand(run func(context.Context, *agentFlags) error) *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   agentName,
		Short: "Run the agent of this machine in the foreground",
		Long: `Runs the agent: it owns the ledger of every GPU and listens on agent.sock and
on one socket per share. Run it as root for the whole machine (deploy/systemd);
divvy run starts a private one where there is none.`,
		Example: `  divvy agent --directory /tmp/d --simulator /tmp/d/simulator.sock`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), &f) })
	flags := cmd.Flags()
	system := agent.System()
	flags.StringVar(&f.directory, "directory", system.Directory, "`folder` of agent.sock and of the shares' sockets")
	flags.StringVar(&f.journal, "journal-dir", "", "`folder` of the journal (default "+system.JournalDirectory+", or --directory)")
	flags.StringVar(&f.driver, "driver-dir", "", "`folder` of the driver's libraries (default: installed, or stand-in)")
	flags.StringVar(&f.simulator, "simulator", "", "`socket` of the simulator behind a stand-in driver")
	flags.StringVar(&f.creation, "creation", string(system.Creation), "`who` may make shares: owner, ephemeral, all")
	flags.StringArrayVar(&f.priority, "priority-limit", nil, "`most` priority that a user may ask for: alice=10, all=5")
	flags.StringVar(&f.commands, "command-lines", string(system.CommandLines), "others' processes are shown by `what`: names, all")
	flags.BoolVar(&f.overlap, "overlap", false, "shares have a GPU beside each other instead of in turns")
	flags.DurationVar(&f.quantum, "quantum", system.Quantum, "`time` for which a share gets a GPU at once, 2ms to 50ms")
	flags.DurationVar(&f.backlog, "backlog", system.Backlog, "`work` a program keeps in flight, 1ms to 12ms")
	flags.StringVar(&f.host, "slow-host", "", "wake as late as such a `host` (divvy demo --help), for tests")
	flags.StringVar(&f.trace, "lease-trace", "", "`file` to append all decisions on leases to, for a replay")
	flags.StringVar(&f.health, "health", "", "`file` that says what faults of GPUs mean, and what to do")
	flags.StringVar(&f.size, "history-size", size.Format(uint64(system.History.Bytes)), "`size` of the history at most; 0: none")
	flags.IntVar(&f.days, "history-days", system.History.Days, "`days` for which it is kept; 0: none")
	flags.StringVar(&f.operators, "operators", "", "`group` whose members may do what root may (default: none)")
	flags.StringVar(&f.audit, "audit", string(system.Audit), "`mode` of the audit: on, off, required: no change without")
	flags.StringVar(&f.auditSize, "audit-size", size.Format(uint64(system.AuditBounds.Bytes)), "`size` of the audit at most: the oldest goes")
	flags.BoolVar(&f.dcgm, "dcgm-metrics", false, "answer /metrics/dcgm, with dcgm-exporter's names")
	flags.StringVar(&f.cdi, "cdi-dir", "", "`folder` for CDI files of declared shares, for containers")
	flags.StringVar(&f.private, "private", "", "be the private agent in this `folder`")
	flags.BoolVar(&f.worker, "worker", false, "serve, rather than keep a worker that does")
	hide(cmd, "private", "worker")
	complete(cmd, "creation", words("owner", "ephemeral", "all"))
	complete(cmd, "command-lines", words(agent.ShowNames, agent.ShowAll))
	complete(cmd, "operators", words[string]())
	complete(cmd, "audit", words(agent.AuditOn, agent.AuditRequired, agent.AuditOff))
	complete(cmd, "cdi-dir", fileCompletion)
	complete(cmd, "health", fileCompletion)
	return cmd
}

func (f *agentFlags) config(a *app) (agent.Config, error) {
	var cfg agent.Config
	if f.private != "" {
		cfg = agent.Private(f.private, f.driver)
	} else {
		cfg = agent.System()
		directory, err := filepath.Abs(f.directory)
		if err != nil {
			return cfg, err
		}
		if directory != cfg.Directory {
			cfg.Directory, cfg.JournalDirectory = directory, directory
		}
		if f.journal != "" {
			cfg.JournalDirectory = f.journal
		}
		cfg.Creation = agent.Creation(f.creation)
		cfg.CommandLines = agent.CommandLines(f.commands)
		if cfg.PriorityLimits, err = priorityLimits(f.priority); err != nil {
			return cfg, usage(fmt.Errorf("--priority-limit: %w", err))
		}
		if cfg.History, err = f.history(); err != nil {
			return cfg, usage(err)
		}
		if f.operators != "" {
			if cfg.Operators, err = groupNumber(f.operators); err != nil {
				return cfg, usage(fmt.Errorf("--operators: %w", err))
			}
		}
		bytes, err := size.Parse(f.auditSize)
		if err != nil {
			return cfg, usage(fmt.Errorf("--audit-size: %w", err))
		}
		cfg.Audit, cfg.AuditBounds.Bytes = agent.AuditMode(f.audit), int64(min(bytes, math.MaxInt64))
	}
	if err := f.times(&cfg); err != nil {
		return cfg, usage(err)
	}
	if f.private == "" {
		if err := f.findDriver(a, &cfg); err != nil {
			return cfg, err
		}
	}
	if f.health != "" {
		raw, err := a.readBounded(f.health)
		if err != nil {
			return cfg, err
		}
		if cfg.Health, err = cfg.Health.With(raw); err != nil {
			return cfg, usage(fmt.Errorf("--health: %s: %w", f.health, err))
		}
	}
	cfg.Overlap, cfg.LeaseTrace = f.overlap, f.trace
	cfg.ProductVersion = version
	cfg.Urgency = urgency.New(urgentPercent)
	cfg.Logger = slog.New(slog.NewTextHandler(a.stderr, nil))
	if err := cfg.Validate(); err != nil {
		return cfg, usage(err)
	}
	cfg.Front = func() error {
		_, err := a.frontFor(cfg.DriverDirectory)
		return err
	}
	if f.cdi != "" && f.worker {
		offers, err := f.offers(a, cfg)
		if err != nil {
			return cfg, err
		}
		cfg.Containers = offers
	}
	if f.private == "" && f.worker {
		cfg.Instances = newInstances(a, f, cfg)
	}
	return cfg, nil
}

// groupNumber is the gid of a group, by name or number.
func groupNumber(name string) (int, error) {
	number := name
	if known, err := user.LookupGroup(name); err == nil {
		number = known.Gid
	}
	gid, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("no group %q", name)
	}
	if gid == 0 {
		return 0, errors.New("group 0 is root's own: name another one")
	}
	return int(gid), nil
}

// history bounds what is kept of figures over time.
func (f *agentFlags) history() (history.Bounds, error) {
	b := history.Bounds{Days: f.days}
	if f.size != "0" {
		bytes, err := size.Parse(f.size)
		if err != nil {
			return b, fmt.Errorf("--history-size: %w", err)
		}
		b.Bytes = int64(min(bytes, math.MaxInt64))
	}
	if err := b.Validate(); err != nil {
		return b, fmt.Errorf("--history-size, --history-days: %w", err)
	}
	return b, nil
}

// allUsers stands for every user that has no limit of his own.
const allUsers = "all"

// priorityLimits reads USER=N, and all=N.
func priorityLimits(entries []string) (agent.PriorityLimits, error) {
	limits := agent.PriorityLimits{Users: map[int]int{}}
	general := false
	for _, entry := range entries {
		who, number, _ := strings.Cut(entry, "=")
		most, err := strconv.Atoi(number)
		if err != nil || who == "" {
			return limits, fmt.Errorf("%q is not like alice=10 or all=5", entry)
		}
		if err := share.Priority.Check(most); err != nil {
			return limits, fmt.Errorf("%s: %w", who, err)
		}
		if who == allUsers {
			if general {
				return limits, fmt.Errorf("%s is given twice", who)
			}
			general, limits.Others = true, most
			continue
		}
		uid, err := userNumber(who)
		if err != nil {
			return limits, err
		}
		if _, twice := limits.Users[uid]; twice {
			return limits, fmt.Errorf("%s is given twice", who)
		}
		limits.Users[uid] = most
	}
	return limits, nil
}

// times sets how leases are given.
func (f *agentFlags) times(cfg *agent.Config) error {
	cfg.Quantum, cfg.Backlog = f.quantum, f.backlog
	if f.host != "" {
		if f.simulator == "" {
			return errors.New("--slow-host is for simulated GPUs: give --simulator")
		}
		var err error
		if cfg.SlowHost, err = lateness.Parse(f.host); err != nil {
			return fmt.Errorf("--slow-host: %w", err)
		}
	}
	return cfg.ValidateLeases()
}

// offers returns what an agent offers to containers.
func (f *agentFlags) offers(a *app, cfg agent.Config) (*cdi.Offers, error) {
	folder, err := filepath.Abs(f.cdi)
	if err != nil {
		return nil, err
	}
	v := api.Version{DriverDirectory: cfg.DriverDirectory}
	if f.simulator != "" {
		if v.Simulator, err = filepath.Abs(f.simulator); err != nil {
			return nil, err
		}
	}
	o, err := a.offers(cdi.Folder(folder), v, f.simulator == "")
	if err != nil {
		return nil, err
	}
	o.Sockets = cfg.SharesFolder()
	return o, nil
}

// findDriver sets the folder of the driver: the one given, the stand-in of this build for
// a simulator, the one that stands at its place already, or links to the one that is
// installed.
func (f *agentFlags) findDriver(a *app, cfg *agent.Config) error {
	if f.driver != "" {
		directory, err := filepath.Abs(f.driver)
		cfg.DriverDirectory = directory
		return err
	}
	if f.simulator != "" {
		dir, err := a.libraries()
		if err != nil {
			return err
		}
		cfg.DriverDirectory, err = dir.Standin(defaultDriver)
		return err
	}
	cfg.DriverDirectory = filepath.Join(cfg.Directory, "driver")
	if exists(filepath.Join(cfg.DriverDirectory, "libnvidia-ml.so.1")) {
		return nil
	}
	found, err := private.FindDriver("/")
	if err != nil {
		return withHint(notThere(err), "divvy agent --driver-dir FOLDER, or divvy run --simulate -- COMMAND")
	}
	if err := os.MkdirAll(cfg.Directory, 0o755); err != nil {
		return err
	}
	return private.LinkDriver(found, cfg.DriverDirectory, 0o755)
}

// simulatorPatience is with a simulator that is started at the same time.
const simulatorPatience = 10 * time.Second

// awaitSimulator waits until a simulator listens: the stand-in driver, which is loaded once,
// would say what a driver says whose kernel module is not loaded. Without one it says so.
func awaitSimulator(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, simulatorPatience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		truth, err := simgpu.Dial(ctx, socket)
		if err == nil {
			_ = truth.Close()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// run runs an agent until a signal ends it, or nobody has used a private one for a while.
func (f *agentFlags) run(ctx context.Context, cfg agent.Config) error {
	if f.simulator != "" {
		// The stand-in driver, which this process is about to load, finds
		// its simulator by it.
		if err := os.Setenv("DIVVY_SIMULATOR", f.simulator); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.simulator != "" && f.private == "" && !f.worker {
		awaitSimulator(ctx, f.simulator)
	}
	if err := f.serve(ctx, cfg); err != nil && !errors.Is(err, agent.ErrIdle) {
		return err
	}
	return nil
}

// serve runs the agent, or the supervisor that keeps its sockets.
func (f *agentFlags) serve(ctx context.Context, cfg agent.Config) error {
	if f.worker {
		return agent.Run(ctx, cfg)
	}
	if f.private != "" {
		closeInherited()
	}
	program, err := self()
	if err != nil {
		return err
	}
	return agent.Supervise(ctx, cfg, append([]string{program}, append(os.Args[1:], "--worker")...)...)
}

// hide keeps flags that only Divvy itself uses out of the help.
func hide(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic(fmt.Sprintf("hide --%s: %v", name, err)) // no such flag: a slip in this file
		}
	}
}
