// SPDX-License-Identifier: Apache-2.0

// Package explain says what limits a share, a process or a GPU now: the causes in order, each
// with what shows it and the command that changes it. It reads two snapshots that are some
// seconds apart and the agent's events, and is pure: the same input gives the same answer, at
// whatever time it is asked.
//
//	subject, err := explain.Find(now, "alice")
//	report := explain.Explain(explain.Look{Before: &before, Now: now, Events: events}, subject)
//
// Not here: what limited it last night (history), faults and what is done about them (health).
package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/event"
	"github.com/divvy-gpu/divvy/internal/selector"
)

// Schema names the document of `divvy why --json`.
const Schema = "divvy.why/v1"

// Report says what limits a subject, the first cause first. There is always one.
type Report struct {
	Schema  string  `json:"schema"`
	Subject string  `json:"subject"` // a share's name, a process id, or a GPU's UUID
	Kind    Kind    `json:"kind"`
	Share   string  `json:"share"`   // of a process; empty: it is under none
	Seconds float64 `json:"seconds"` // for how long was looked; 0: there is one snapshot only
	Causes  []Cause `json:"causes"`
}

// Kind is what a subject is.
type Kind string

// Kinds of subjects.
const (
	Share   Kind = "share"
	Process Kind = "process"
	Card    Kind = "card"
)

// Name is a kind of cause. Programs depend on them: none is renamed or changes its meaning.
type Name string

// Causes. docs/why.md says what shows each, and what to do.
const (
	LostCard        Name = "lost-card"
	NeedsReset      Name = "needs-reset"
	Unresponsive    Name = "unresponsive"
	Unshareable     Name = "unshareable"
	Deleted         Name = "deleted"
	Paused          Name = "paused"
	Shrinking       Name = "shrinking"
	Stuck           Name = "stuck"
	Detached        Name = "detached"
	OverMemory      Name = "over-memory"
	Contexts        Name = "contexts"
	NotHeld         Name = "not-held"
	HotCard         Name = "hot-card"
	Cordoned        Name = "cordoned"
	FixedQuota      Name = "fixed-quota"
	HigherPriority  Name = "higher-priority"
	LongKernels     Name = "long-kernels"
	FixedNeighbours Name = "fixed-neighbours"
	EqualSharing    Name = "equal-sharing"
	Weights         Name = "weights"
	SameShare       Name = "same-share"
	HostLate        Name = "host-late"
	PowerLimit      Name = "power-limit"
	Stranger        Name = "stranger"
	GPUBusy         Name = "gpu-busy"
	Nothing         Name = "nothing"
)

// Names lists them.
func Names() []Name {
	return []Name{LostCard, NeedsReset, Unresponsive, Unshareable, Deleted, Paused, Shrinking, Stuck, Detached, OverMemory, Contexts, NotHeld, HotCard,
		Cordoned, FixedQuota, HigherPriority, LongKernels, FixedNeighbours, EqualSharing, Weights, SameShare, HostLate, PowerLimit, Stranger, GPUBusy, Nothing}
}

// Cause is something that limits the subject.
type Cause struct {
	Cause    Name   `json:"cause"`
	Evidence string `json:"evidence"` // figures, times, events: a sentence
	// Percent is how much it takes: of the seconds that were looked, or for memory how full the
	// quota is. null: it has no such figure.
	Percent  *float64 `json:"percent"`
	Command  string   `json:"command"`  // that changes it
	CardUUID string   `json:"cardUuid"` // empty: it is not of one GPU

	rank rank
}

// rank orders causes of different kinds; those of one kind go by percent.
type rank int

const (
	rankBroken   rank = iota // nothing runs
	rankState                // nothing is granted
	rankStuck                // nothing ends
	rankTaken                // an unaccounted process has the memory that was asked for
	rankContexts             // the driver has
	rankMemory               // its own programs have
	rankUnheld               // nothing of ours limits it
	rankSlow                 // everything takes longer
	rankQuota                // its own part of the time is used up
	rankTime                 // others have the time
	rankPresent              // an unaccounted process is there, what it takes is not known
	rankBusy                 // it has all that there is
	rankNothing
	rankAside // limits others than the subject
)

// Look is what an explanation rests on.
type Look struct {
	Before *api.Snapshot // some seconds older, of the same life; else it is left out
	Now    api.Snapshot
	Events []api.Event // as far as they are kept, oldest first
}

// Subject is what is explained.
type Subject struct {
	Kind  Kind
	Name  string // share's name, process id or GPU's UUID
	Share string // of a process; empty: it is under none
	PID   int    // of a process
	Card  string // UUID, of a GPU
}

// NotFoundError says that nothing is called so.
type NotFoundError struct {
	Word string
	Near []string // names that are
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no share, process or GPU %q", e.Word) }

// AmbiguousError says that several GPUs begin so.
type AmbiguousError struct {
	Word string
	GPUs []string // UUIDs
}

func (e *AmbiguousError) Error() string { return fmt.Sprintf("%q means %d GPUs", e.Word, len(e.GPUs)) }

// Find says what a word means: a share, else a process that uses a GPU, else a GPU.
func Find(s api.Snapshot, word string) (Subject, error) {
	var names []string
	for _, of := range s.Shares {
		if of.Name == word {
			return Subject{Kind: Share, Name: word}, nil
		}
		names = append(names, of.Name)
	}
	if pid, err := strconv.Atoi(word); err == nil {
		process := Subject{Kind: Process, Name: strconv.Itoa(pid), PID: pid}
		for _, of := range s.Shares {
			for _, p := range of.Processes {
				if p.PID == pid {
					process.Share = of.Name
					return process, nil
				}
			}
		}
		for _, c := range s.Cards {
			for _, p := range c.Unaccounted {
				if p.PID == pid {
					return process, nil
				}
			}
		}
	}
	var part []string
	for _, c := range s.Cards {
		switch selector.Names(word, c.UUID, c.PCIAddress) {
		case selector.Whole:
			return Subject{Kind: Card, Name: c.UUID, Card: c.UUID}, nil
		case selector.Part:
			part = append(part, c.UUID)
		}
		names = append(names, c.UUID)
	}
	switch len(part) {
	case 1:
		return Subject{Kind: Card, Name: part[0], Card: part[0]}, nil
	case 0:
		return Subject{}, &NotFoundError{Word: word, Near: selector.Nearest(word, names)}
	}
	return Subject{}, &AmbiguousError{Word: word, GPUs: part}
}

// Explain says what limits a subject. One that is gone by now is limited by nothing.
func Explain(l Look, of Subject) Report {
	e := &explainer{now: &l.Now, events: l.Events, shares: map[string]*api.SnapshotShare{}, cards: map[string]*api.SnapshotCard{}}
	if b := l.Before; b != nil && b.Life == l.Now.Life && b.MonotonicNs < l.Now.MonotonicNs {
		e.before, e.span = b, time.Duration(l.Now.MonotonicNs-b.MonotonicNs)
	}
	for i := range l.Now.Shares {
		e.shares[l.Now.Shares[i].Name] = &l.Now.Shares[i]
	}
	for i := range l.Now.Cards {
		e.cards[l.Now.Cards[i].UUID] = &l.Now.Cards[i]
	}
	switch of.Kind {
	case Share, Process:
		e.share(of)
	case Card:
		e.card(of)
	}
	if len(e.causes) == 0 {
		e.add(Cause{Cause: Nothing, Evidence: "it is gone", Command: "divvy events", rank: rankNothing})
	}
	slices.SortStableFunc(e.causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(weight(b), weight(a)))
	})
	return Report{Schema: Schema, Subject: of.Name, Kind: of.Kind, Share: of.Share, Seconds: tenths(e.span.Seconds()), Causes: e.causes}
}

func weight(c Cause) float64 {
	if c.Percent == nil {
		return 0
	}
	return *c.Percent
}

// explainer gathers the causes of one subject.
type explainer struct {
	now    *api.Snapshot
	before *api.Snapshot // nil: there is none
	span   time.Duration // between them
	events []api.Event
	shares map[string]*api.SnapshotShare
	cards  map[string]*api.SnapshotCard
	causes []Cause
}

func (e *explainer) add(c Cause) {
	if c.Percent != nil {
		*c.Percent = tenths(*c.Percent)
	}
	e.causes = append(e.causes, c)
}

// explained says whether there is a cause of one of these ranks.
func (e *explainer) explained(ranks ...rank) bool {
	return slices.ContainsFunc(e.causes, func(c Cause) bool { return slices.Contains(ranks, c.rank) })
}

func tenths(v float64) float64 { return math.Round(v*10) / 10 }

func percent(v float64) *float64 { return &v }

// How long ago what happened still limits something.
const lately = time.Minute

// last is the last event of a kind that is wanted; nil: none is kept.
func (e *explainer) last(kind event.Kind, wanted func(api.Event) bool) *api.Event {
	for i := len(e.events) - 1; i >= 0; i-- {
		if found := &e.events[i]; found.Kind == kind && wanted(*found) {
			return found
		}
	}
	return nil
}

// recent is the same, of an event that was no longer ago than lately.
func (e *explainer) recent(kind event.Kind, wanted func(api.Event) bool) *api.Event {
	return e.last(kind, func(found api.Event) bool { return e.now.Time.Sub(found.Time) <= lately && wanted(found) })
}

// told words where somebody can look an event up; empty: there is none.
func told(found *api.Event) string {
	if found == nil {
		return ""
	}
	return fmt.Sprintf(" (event %d, %s, %s)", found.Sequence, found.Kind, clock(found.Time))
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// seconds words a time.
func seconds(d time.Duration) string {
	if d < time.Second {
		return strconv.FormatFloat(float64(d.Microseconds())/1e3, 'f', -1, 64) + " ms"
	}
	return strconv.FormatFloat(tenths(d.Seconds()), 'f', -1, 64) + " s"
}

func percentText(v float64) string { return strconv.FormatFloat(tenths(v), 'f', -1, 64) + " %" }

// short is enough of a GPU's UUID to name it.
func short(uuid string) string {
	if len(uuid) > 12 {
		return uuid[:12]
	}
	return uuid
}

// words lists names, the first few.
func words(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}
