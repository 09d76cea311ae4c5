// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/audit"
	"github.com/divvy-gpu/divvy/internal/enforce"
	"github.com/divvy-gpu/divvy/internal/health"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/kernellog"
	"github.com/divvy-gpu/divvy/internal/lateness"
	"github.com/divvy-gpu/divvy/internal/urgency"
)

// Creation says who may create shares through the interface of an agent.
type Creation string

const (
	CreateOwner     Creation = "owner"     // the agent's own uid and root
	CreateEphemeral Creation = "ephemeral" // everybody else: ephemeral shares only (divvy run)
	CreateAll       Creation = "all"       // everybody
)

// Exporter answers scrapes of what snapshot returns, which does not wait for a driver.
type Exporter func(snapshot func(context.Context) (*api.Snapshot, error)) http.Handler

// Config is what an agent needs to know. System and Private give complete
// ones; the zero value is not valid.
type Config struct {
	Directory        string // holds agent.sock and shares/NAME/share.sock
	JournalDirectory string // holds the journal
	DriverDirectory  string // holds libnvidia-ml.so.1, the vendor's or a stand-in

	// Private agents serve their own uid only and keep their sockets to it.
	Private bool
	// Creation says who may create shares; without meaning for a private agent.
	Creation Creation
	// PriorityLimits says who may give shares which priority.
	PriorityLimits PriorityLimits
	// CommandLines says who is shown the command lines of others.
	CommandLines CommandLines
	// ShareSocketMode is the mode of share sockets; who may attach is decided
	// by it and by the mode of the directory the socket is seen through.
	ShareSocketMode fs.FileMode

	// IdleExit ends the agent when there has been no client, no holder and no
	// declared share for so long; 0 means never.
	IdleExit time.Duration

	// ContextBytes is the overhead of one context on a real card; 0 takes the
	// estimate. Simulated cards cost 64 MiB whatever is set here.
	ContextBytes uint64

	// Quantum is for how long a share gets a card at once, where its time is
	// leased.
	Quantum time.Duration
	// LeaseTrace is a file that all decisions on leases are appended to, so that
	// they can be replayed; empty: none.
	LeaseTrace string
	// Backlog is how much unfinished work a process of a gated share may keep.
	Backlog time.Duration
	// SlowHost makes the agent wake as late as on such a host, for tests and benches
	// on simulated cards.
	SlowHost lateness.Profile
	// Overlap lets shares have a card beside each other instead of in turns.
	Overlap bool

	RestartGrace      time.Duration // how long a restarted agent waits for the journal's clients before it grants
	EphemeralGrace    time.Duration // how long an ephemeral share waits for its first holder or client
	EndDeadline       time.Duration // how long deleting a share waits for processes that the kernel is ending
	ShrinkDeadline    time.Duration // after this a share that still is over its new limit raises an event
	HandshakeDeadline time.Duration // from accept to HELLO
	RequestDeadline   time.Duration // for a request of the HTTP interface to come in
	ReconcileEvery    time.Duration // at most one comparison with the driver in this time
	DivideEvery       time.Duration // how often the time of GPUs is divided that run programs in turns by themselves; negative: never
	LookEvery         time.Duration // how often is looked at what nobody tells of: how cards are, and MPS
	MaxClients        int           // in all
	MaxShareClients   int           // per share
	MaxShares         int
	MaxEvents         int // remembered

	// Metrics answers GET /metrics, and DCGMMetrics GET /metrics/dcgm; nil: nobody does.
	Metrics, DCGMMetrics Exporter

	// Operators is the group whose members may do what root may; 0: there is none.
	Operators int
	// Audit says whether who did what is kept, and AuditBounds how much of it.
	Audit       AuditMode
	AuditBounds audit.Bounds

	// History bounds what is kept of figures over time.
	History history.Bounds

	// Containers is told of declared shares, for container runtimes; nil: nobody
	// is.
	Containers Containers

	// Instances makes MIG instances; nil: nobody does.
	Instances Instances

	// Health says what faults of GPUs mean, and what is done about them; the zero value
	// is the built-in policy, which takes a millisecond to read.
	Health health.Policy
	// KernelLog is where the kernel's log is read for faults of GPUs that are not simulated; empty:
	// it is not.
	KernelLog string
	// StuckAfter is for how long a program must have had work in flight of which none ended
	// until that is told.
	StuckAfter time.Duration

	// Front says why the front library is not there for the driver; nil: it is.
	Front func() error
	// Enforcers hold shares besides the front library, strongest first. Run adds the
	// driver's and MPS.
	Enforcers []enforce.Enforcer

	ProductVersion string
	Logger         *slog.Logger
	// Urgency is of this process while programs wait for turns; nil: it is as usual.
	Urgency *urgency.Guard
}

// System is the configuration of the agent of a whole machine, run by root.
func System() Config {
	c := defaults()
	c.Directory = "/run/divvy"
	c.JournalDirectory = "/var/lib/divvy"
	c.DriverDirectory = "/run/divvy/driver"
	c.Creation = CreateEphemeral
	c.CommandLines = ShowNames
	c.ShareSocketMode = 0o666
	c.KernelLog = kernellog.Path
	return c
}

// Private is the configuration of one user's own agent in directory.
func Private(directory, driverDirectory string) Config {
	c := defaults()
	c.Directory = directory
	c.JournalDirectory = directory
	c.DriverDirectory = driverDirectory
	c.Private = true
	c.Creation = CreateOwner
	c.CommandLines = ShowAll // to its one user
	c.ShareSocketMode = 0o600
	c.IdleExit = 5 * time.Second
	c.History = history.PrivateBounds()
	c.AuditBounds = audit.PrivateBounds()
	return c
}

func defaults() Config {
	return Config{
		Quantum:           10 * time.Millisecond,
		Backlog:           arbiter.DefaultBacklog,
		RestartGrace:      2 * time.Second,
		EphemeralGrace:    5 * time.Second,
		EndDeadline:       2 * time.Second,
		ShrinkDeadline:    30 * time.Second,
		HandshakeDeadline: 2 * time.Second,
		RequestDeadline:   30 * time.Second,
		ReconcileEvery:    time.Second,
		DivideEvery:       500 * time.Millisecond, // a driver has samples of some tenths of a second
		LookEvery:         5 * time.Second,
		StuckAfter:        30 * time.Second,
		MaxClients:        4096,
		MaxShareClients:   4096,
		MaxShares:         1024,
		MaxEvents:         4096,
		History:           history.DefaultBounds(),
		Audit:             AuditOn,
		AuditBounds:       audit.DefaultBounds(),
		ProductVersion:    "development",
		Logger:            slog.New(slog.DiscardHandler),
	}
}

// APISocket is where the HTTP interface listens.
func (c Config) APISocket() string { return filepath.Join(c.Directory, "agent.sock") }

// SharesFolder has a folder for each share.
func (c Config) SharesFolder() string { return filepath.Join(c.Directory, "shares") }

// ShareSocket is where the processes of the share attach.
func (c Config) ShareSocket(share string) string {
	return filepath.Join(c.SharesFolder(), share, "share.sock")
}

// MPSFolder has a directory for the MPS control daemon of each card, by UUID.
func (c Config) MPSFolder() string { return filepath.Join(c.Directory, "mps") }

// GroupFolder has the control groups of shares, from the root of the tree: one
// that no other agent of the machine uses.
func (c Config) GroupFolder() string {
	if c.Directory == System().Directory {
		return "divvy"
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(c.Directory)) // never fails
	return fmt.Sprintf("divvy-%016x", sum.Sum64())
}

// Validate says what is wrong with a configuration.
func (c Config) Validate() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range []struct{ name, path string }{
		{"directory", c.Directory},
		{"journal directory", c.JournalDirectory},
		{"driver directory", c.DriverDirectory},
	} {
		if !filepath.IsAbs(d.path) {
			reject("%s %q is not an absolute path", d.name, d.path)
		}
	}
	// sun_path has 108 bytes with its NUL; a share name has at most 63.
	if n := len(c.ShareSocket("")) + 1; n > 107-20 {
		reject("directory %q is too long for the path of a socket", c.Directory)
	}
	switch c.Creation {
	case CreateOwner, CreateEphemeral, CreateAll:
	default:
		reject("creation %q is not one of owner, ephemeral, all", c.Creation)
	}
	if err := c.PriorityLimits.validate(); err != nil {
		reject("%w", err)
	}
	switch c.CommandLines {
	case ShowNames, ShowAll:
	default:
		reject("command lines %q is not one of names, all", c.CommandLines)
	}
	if c.ShareSocketMode&^0o777 != 0 || c.ShareSocketMode&0o600 != 0o600 {
		reject("share socket mode %#o does not make sense", c.ShareSocketMode)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"restart grace", c.RestartGrace},
		{"ephemeral grace", c.EphemeralGrace},
		{"end deadline", c.EndDeadline},
		{"shrink deadline", c.ShrinkDeadline},
		{"handshake deadline", c.HandshakeDeadline},
		{"request deadline", c.RequestDeadline},
		{"reconcile interval", c.ReconcileEvery},
		{"look interval", c.LookEvery},
		{"stuck after", c.StuckAfter},
	} {
		if d.value <= 0 {
			reject("%s %v is not positive", d.name, d.value)
		}
	}
	if err := c.ValidateLeases(); err != nil {
		errs = append(errs, err)
	}
	if c.IdleExit < 0 {
		reject("idle exit %v is negative", c.IdleExit)
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"clients", c.MaxClients},
		{"clients per share", c.MaxShareClients},
		{"shares", c.MaxShares},
		{"events", c.MaxEvents},
	} {
		if n.value < 1 {
			reject("maximum of %s %d is not positive", n.name, n.value)
		}
	}
	if c.DivideEvery == 0 {
		reject("divide interval is 0")
	}
	if c.Operators < 0 {
		reject("there is no group %d", c.Operators)
	}
	switch c.Audit {
	case AuditOn, AuditRequired, AuditOff:
	default:
		reject("audit %q is not one of on, required, off", c.Audit)
	}
	if err := c.AuditBounds.Validate(); err != nil {
		reject("%w", err)
	}
	if err := c.History.Validate(); err != nil {
		reject("%w", err)
	}
	if err := c.Health.Validate(); err != nil && !c.Health.IsZero() {
		reject("%w", err)
	}
	if c.Logger == nil {
		reject("no logger")
	}
	return errors.Join(errs...)
}

// ValidateLeases says what is wrong with how leases are given; Validate does so too.
func (c Config) ValidateLeases() error {
	if err := c.SlowHost.Validate(); err != nil {
		return fmt.Errorf("slow host: %w", err)
	}
	return c.arbiter().Validate()
}

// arbiter is how the time of a card is divided.
func (c *Config) arbiter() arbiter.Config {
	config := arbiter.Default(c.Quantum)
	config.Overlap, config.Backlog = c.Overlap, c.Backlog
	config.Deepest = c.Backlog + arbiter.DefaultDeepest - arbiter.DefaultBacklog
	return config
}
