// SPDX-License-Identifier: Apache-2.0

// Package health knows what an XID says of a GPU, and what is done about it: a table and a
// policy, both data (data/health.yaml), of which a file can replace entries. It is pure, and does
// nothing itself: the agent's ledger cordons, nobody resets a GPU or ends a program.
//
//	policy, err := health.Default()
//	fault := policy.Of(48)
//	if policy.Rules[fault.Class].Cordon { ... }
package health

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/data"
	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// Class is what a fault means for those who use the GPU.
type Class string

// Classes, the mildest first.
const (
	Application Class = "application" // the program's own
	Watch       Class = "watch"       // nothing yet
	Slowed      Class = "slowed"      // the GPU works, slower
	Drain       Class = "drain"       // what runs may go on, nothing new should come
	Reset       Class = "reset"       // the GPU works only after a reset
	Hardware    Class = "hardware"    // somebody has to look at it
)

// Classes lists them.
func Classes() []Class { return []Class{Application, Watch, Slowed, Drain, Reset, Hardware} }

// Fault is what is known of an XID.
type Fault struct {
	Class  Class
	Advice string // what somebody can do
	Source string // where that is from
}

// Rule is what is done about a class.
type Rule struct {
	Cordon bool // the GPU takes no new share; else the fault is only noted
	// LiftAfter is for how long the GPU must have been well until that ends by itself; 0: somebody
	// ends it.
	LiftAfter time.Duration
}

// Policy is the table and the rules.
type Policy struct {
	Faults map[uint64]Fault
	Rules  map[Class]Rule // of every class
}

// IsZero says that nothing is in it.
func (p Policy) IsZero() bool { return p.Faults == nil && p.Rules == nil }

// Validate says which class has no rule.
func (p Policy) Validate() error {
	for _, c := range Classes() {
		if _, ok := p.Rules[c]; !ok {
			return fmt.Errorf("health: class %s has no rule", c)
		}
	}
	return nil
}

// Of is what an XID says; one that is not in the table is watched.
func (p Policy) Of(xid uint64) Fault {
	if f, ok := p.Faults[xid]; ok {
		return f
	}
	return Fault{Class: Watch, Advice: "look it up in NVIDIA's catalog of XIDs", Source: "not in the table"}
}

// Default is the built-in policy.
func Default() (Policy, error) {
	p := Policy{Faults: map[uint64]Fault{}, Rules: map[Class]Rule{}}
	if err := p.read(data.Health()); err != nil {
		return p, fmt.Errorf("data/health.yaml: %w", err)
	}
	return p, p.Validate()
}

// Bounds of what is read.
const (
	maxFileBytes = 256 << 10
	maxText      = 512 // of advice and source
	maxXID       = 1 << 20
	maxLift      = 30 * 24 * time.Hour
)

// With is the policy, the built-in one where it is zero, with what a file says instead.
func (p Policy) With(file []byte) (Policy, error) {
	if p.IsZero() {
		var err error
		if p, err = Default(); err != nil {
			return p, err
		}
	}
	own := Policy{Faults: maps.Clone(p.Faults), Rules: maps.Clone(p.Rules)}
	if err := own.read(file); err != nil {
		return p, err
	}
	return own, nil
}

// read replaces what a document names.
func (p Policy) read(raw []byte) error {
	root, err := yamldoc.Parse(raw, maxFileBytes)
	if err != nil {
		return err
	}
	if root.Kind == 0 {
		return nil // empty
	}
	return yamldoc.Fields(root.Content[0], "the document", func(key string, value *yaml.Node) error {
		switch key {
		case "classes":
			return yamldoc.Fields(value, key, p.readRule)
		case "xids":
			return yamldoc.Fields(value, key, p.readFault)
		}
		return fmt.Errorf("unknown field %q: classes and xids are known", key)
	})
}

func (p Policy) readRule(name string, value *yaml.Node) error {
	class, err := classOf(name)
	if err != nil {
		return err
	}
	rule, given := Rule{}, map[string]bool{}
	if err := yamldoc.Fields(value, name, func(key string, value *yaml.Node) (err error) {
		given[key] = true
		text, err := scalar(value)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, key, err)
		}
		switch key {
		case "action":
			rule.Cordon = text == "cordon"
			if !rule.Cordon && text != "note" {
				return fmt.Errorf("%s: action %q is neither note nor cordon", name, text)
			}
		case "lift":
			if text == "hand" {
				return nil
			}
			if rule.LiftAfter, err = time.ParseDuration(text); err != nil || rule.LiftAfter < time.Second || rule.LiftAfter > maxLift {
				return fmt.Errorf("%s: lift %q is neither hand nor a time from 1s to %v, as 10m", name, text, maxLift)
			}
		default:
			return fmt.Errorf("%s: unknown field %q: action and lift are known", name, key)
		}
		return nil
	}); err != nil {
		return err
	}
	switch {
	case !given["action"]:
		return fmt.Errorf("%s: no action: note or cordon", name)
	case !rule.Cordon && given["lift"]:
		return fmt.Errorf("%s: lift is of a cordon, and the action is note", name)
	case rule.Cordon && !given["lift"]:
		return fmt.Errorf("%s: a cordon needs lift: hand, or a time", name)
	}
	p.Rules[class] = rule
	return nil
}

func (p Policy) readFault(number string, value *yaml.Node) error {
	xid, err := strconv.ParseUint(number, 10, 64)
	if err != nil || xid == 0 || xid > maxXID {
		return fmt.Errorf("xids: %q is not the number of an XID", yamldoc.Short(number))
	}
	var fault Fault
	if err := yamldoc.Fields(value, "xid "+number, func(key string, value *yaml.Node) (err error) {
		text, err := scalar(value)
		if err == nil && len(text) > maxText {
			err = fmt.Errorf("longer than %d bytes", maxText)
		}
		if err != nil {
			return fmt.Errorf("xid %s: %s: %w", number, key, err)
		}
		switch key {
		case "class":
			if fault.Class, err = classOf(text); err != nil {
				return fmt.Errorf("xid %s: %w", number, err)
			}
		case "advice":
			fault.Advice = text
		case "source":
			fault.Source = text
		default:
			return fmt.Errorf("xid %s: unknown field %q: class, advice and source are known", number, key)
		}
		return nil
	}); err != nil {
		return err
	}
	if fault.Class == "" {
		return fmt.Errorf("xid %s: no class", number)
	}
	p.Faults[xid] = fault
	return nil
}

func classOf(text string) (Class, error) {
	if !slices.Contains(Classes(), Class(text)) {
		var names []string
		for _, c := range Classes() {
			names = append(names, string(c))
		}
		return "", fmt.Errorf("unknown class %q: there are %s", yamldoc.Short(text), strings.Join(names, ", "))
	}
	return Class(text), nil
}

func scalar(node *yaml.Node) (string, error) {
	if node.Kind != yaml.ScalarNode {
		return "", fmt.Errorf("line %d: not a single value", node.Line)
	}
	return node.Value, nil
}
