// SPDX-License-Identifier: Apache-2.0

// Package placement decides where a request for GPUs goes: on which node and
// on which of its cards. It holds the capacity model, the fragmentation metric
// and the policies, and it is the only copy of that decision: the scheduler
// plugin, the agent and the planner call it.
//
// The package is pure: no files, network, goroutines, locks, logs or clock.
// Decisions are deterministic for a seed; scores are made distinct by explicit
// ties (score, then node order), never left to the caller.
//
//	fleet := placement.NewFleet(nodes)
//	engine := placement.NewEngine(fleet, placement.NewDivvy(workload), 42)
//	spot, ok := engine.Place(placement.Request{CPUMilli: 4000, GPUs: 1, GPUMilli: 300})
//
// Non-goals: talking to Kubernetes, time, queues. The planner has those.
package placement

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// WholeCard is one card in thousandths.
const WholeCard = 1000

// MaxCards is the largest number of cards a node may have.
const MaxCards = 16

var (
	// ErrNoRoom says that no node can take the request now.
	ErrNoRoom = errors.New("no room")
	// ErrInvalid says that a request or a node makes no sense.
	ErrInvalid = errors.New("invalid")
)

// Request is what one task wants: a part of one card, whole cards, or a MIG
// partition, with CPU and host memory beside it.
type Request struct {
	Name         string
	CPUMilli     int64    // thousandths of a core
	MemoryMiB    int64    // host memory
	GPUs         int      // cards; 0 for a task without a GPU
	GPUMilli     int64    // cores of each card in thousandths; below 1000 only with one card
	GPUMemoryMiB int64    // device memory of each card; 0: as much as the cores' part is not asked for
	Models       []string // allowed card models; empty: any
	Linked       bool     // several cards must be of one island
	Profile      string   // MIG profile such as "2g.20gb"; excludes GPUMilli
	Tenant       string
	Priority     int // higher may preempt lower
	Counted      Counted
	Where        *Where // nil: any node with room
}

// Validate reports a request that no fleet could mean.
func (r Request) Validate() error {
	switch {
	case r.CPUMilli < 0 || r.MemoryMiB < 0 || r.GPUMemoryMiB < 0:
		return fmt.Errorf("request %q: %w: negative amount", r.Name, ErrInvalid)
	case r.GPUs < 0 || r.GPUs > MaxCards:
		return fmt.Errorf("request %q: %w: %d GPUs, want 0 to %d", r.Name, ErrInvalid, r.GPUs, MaxCards)
	case r.GPUs == 0 && (r.GPUMilli != 0 || r.GPUMemoryMiB != 0 || r.Profile != ""):
		return fmt.Errorf("request %q: %w: a part of a GPU but no GPU", r.Name, ErrInvalid)
	case r.Profile != "" && (r.GPUs != 1 || r.GPUMilli != 0 || r.GPUMemoryMiB != 0):
		return fmt.Errorf("request %q: %w: a MIG profile is of one GPU, without other amounts", r.Name, ErrInvalid)
	case r.GPUs > 0 && r.Profile == "" && (r.GPUMilli < 1 || r.GPUMilli > WholeCard):
		return fmt.Errorf("request %q: %w: %d thousandths of a GPU, want 1 to %d", r.Name, ErrInvalid, r.GPUMilli, WholeCard)
	case r.GPUs > 1 && r.GPUMilli != WholeCard:
		return fmt.Errorf("request %q: %w: parts of several GPUs", r.Name, ErrInvalid)
	}
	if err := validCounted(r.Counted); err != nil {
		return fmt.Errorf("request %q: %w", r.Name, err)
	}
	return nil
}

// Card is one GPU of a node as the fleet is described.
type Card struct {
	MemoryMiB int64        // device memory; 0: unknown, then only cores are counted
	Island    int          // cards of a node with the same number are linked (NVLink, XGMI)
	MIG       *mig.Product // not nil: the card serves profiles and no parts
	OnDemand  bool         // MIG mode goes on and off as asked: while empty, the card also serves as a whole
}

// Node is one machine as the fleet is described.
type Node struct {
	Name      string
	Model     string // of its cards
	Rack      string
	CPUMilli  int64
	MemoryMiB int64
	Cards     []Card
	Counted   Counted
}

// Validate reports a node that cannot be.
func (n Node) Validate() error {
	switch {
	case n.Name == "":
		return fmt.Errorf("node: %w: no name", ErrInvalid)
	case n.CPUMilli < 0 || n.MemoryMiB < 0:
		return fmt.Errorf("node %s: %w: negative amount", n.Name, ErrInvalid)
	case len(n.Cards) > MaxCards:
		return fmt.Errorf("node %s: %w: %d GPUs, want at most %d", n.Name, ErrInvalid, len(n.Cards), MaxCards)
	}
	for i, c := range n.Cards {
		if c.MemoryMiB < 0 || c.Island < 0 || c.Island >= MaxCards {
			return fmt.Errorf("node %s: %w: GPU %d has %d MiB and is of island %d", n.Name, ErrInvalid, i, c.MemoryMiB, c.Island)
		}
	}
	if err := validCounted(n.Counted); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// Spot is where a request was put.
type Spot struct {
	Node  int    // index into the fleet's nodes, which are in name order
	Cards uint32 // bit i: card i of the node
	Start int8   // first memory unit of a MIG partition
}
