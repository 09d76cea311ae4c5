// SPDX-License-Identifier: Apache-2.0

// Package simgpu runs the simulated cards: it plays the silicon and the kernel
// driver for the stand-in driver library (clib/standin), over a unix socket,
// and tells tests, benches and the demo the ground truth of who holds what.
//
//	server, err := simgpu.Listen(simgpu.Config{Cards: "2xA100-40GB", Socket: path})
//	...
//	err = server.Serve(ctx)
//
// What is counted, and the cards themselves, stand in internal/simgpu/silicon,
// which is pure; here are sockets, descriptors and processes. One goroutine,
// the kernel, owns all state; each connection has a goroutine that reads its
// requests and writes the answers, so that a stuck client delays nobody else.
//
// Time is internal/simgpu/timeline's, which is pure too. Processes write their
// launches into rings that they share with the kernel; it reads them when somebody
// asks for something that depends on time, so a launch costs no message and no
// timer runs.
//
// It knows nothing of shares and quotas.
package simgpu

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/urgency"
)

// Driver is a generation of driver that the simulator can play.
type Driver struct {
	Name    string // as in --driver
	Version string // as drivers report their own version
	CUDA    int    // as cuDriverGetVersion reports it
}

// Drivers returns the generations, oldest first. The stand-in library is built
// once for each.
func Drivers() []Driver {
	return []Driver{
		{Name: "11.8", Version: "520.61.05", CUDA: 11080},
		{Name: "12.2", Version: "535.104.05", CUDA: 12020},
		{Name: "13.0", Version: "580.65.06", CUDA: 13000},
		{Name: "13.1", Version: "590.44.01", CUDA: 13010},
	}
}

// DefaultDriver is the generation played unless Config says otherwise.
const DefaultDriver = "12.2"

const (
	maxConnections    = 8192
	writeTimeout      = 2 * time.Second
	detachedInterval  = 5 * time.Millisecond
	maxSocketPath     = 107
	maxArenaBytes     = 1 << 44
	sampleMaxAge      = 100 * time.Millisecond
	defaultSlice      = 2 * time.Millisecond
	maxSlice          = time.Second
	defaultSocketMode = 0o666 // as /dev/nvidia0: whoever reaches it may use the cards
)

// Config says what to simulate and where.
type Config struct {
	Cards           string // SPEC; empty: silicon.DefaultSpec
	Topology        string // how they are connected, of silicon.Topologies; empty: the first
	Driver          string // generation; empty: DefaultDriver
	Socket          string
	SocketMode      fs.FileMode   // 0: everybody
	Seed            uint64        // of the cards' identities
	HostBudgetBytes uint64        // host memory for contents; 0: half of what is available at the start
	PlainNames      bool          // leave out "(simulated)" behind the cards' names
	IdleExit        time.Duration // Serve ends when no one has been connected for so long; 0: never
	Slice           time.Duration // of a card's time for one process, when several want it; 0: 2 ms
	Switch          time.Duration // a card's change to another process
	Limits          silicon.Limits
	MIG             *mig.Table     // profiles of the cards; nil: mig.Default
	Log             *slog.Logger   // nil: none
	Urgency         *urgency.Guard // while work on a card is waited for; nil: none
}

// withDefaults fills in what is empty.
func (c Config) withDefaults() Config {
	if c.Cards == "" {
		c.Cards = silicon.DefaultSpec
	}
	if c.Topology == "" {
		c.Topology = silicon.Topologies()[0]
	}
	if c.Driver == "" {
		c.Driver = DefaultDriver
	}
	if c.SocketMode == 0 {
		c.SocketMode = defaultSocketMode
	}
	if c.Limits == (silicon.Limits{}) {
		c.Limits = silicon.DefaultLimits()
	}
	if c.Slice == 0 {
		c.Slice = defaultSlice
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Socket == "" {
		return errors.New("no socket path")
	}
	if len(c.Socket) > maxSocketPath {
		return fmt.Errorf("socket path %.40q... has %d bytes, at most %d work", c.Socket, len(c.Socket), maxSocketPath)
	}
	if _, err := c.driver(); err != nil {
		return err
	}
	if c.IdleExit < 0 {
		return fmt.Errorf("idle exit after %v: must not be negative", c.IdleExit)
	}
	if c.Slice < 0 || c.Slice > maxSlice || c.Switch < 0 || c.Switch > maxSlice {
		return fmt.Errorf("slices of %v with %v between: neither may be negative or above %v", c.Slice, c.Switch, maxSlice)
	}
	if l := c.Limits; l.Processes < 1 || l.Objects < 1 || l.Handles < 1 || l.History < 1 {
		return fmt.Errorf("limits %+v: each must be at least 1", l)
	}
	cards, err := silicon.ParseSpec(c.Cards, c.Seed)
	if err != nil {
		return err
	}
	if _, err = silicon.Connect(cards, c.Topology); err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	return nil
}

func (c Config) driver() (Driver, error) {
	var known []string
	for _, d := range Drivers() {
		if d.Name == c.Driver {
			return d, nil
		}
		known = append(known, d.Name)
	}
	return Driver{}, fmt.Errorf("driver generation %q: known are %v", c.Driver, known)
}
