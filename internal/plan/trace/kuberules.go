// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
)

// kubeNode is what decides, besides room, which pods a node takes.
type kubeNode struct {
	Labels map[string]string
	Taints []kubeTaint
}

// kubeRules are what a pod says of nodes.
type kubeRules struct {
	Selector    map[string]string
	Terms       []kubeTerm
	Tolerations []kubeToleration
}

const (
	reasonTaint    placement.Reason = "taints"
	reasonSelector placement.Reason = "node selector or affinity"
)

// bar says why a node may not take the pod; empty: it may.
func (r *kubeRules) bar(name string, n kubeNode) placement.Reason {
	for key, value := range r.Selector {
		if has, there := n.Labels[key]; !there || has != value {
			return reasonSelector
		}
	}
	if len(r.Terms) > 0 && !slices.ContainsFunc(r.Terms, func(t kubeTerm) bool { return t.met(name, n) }) {
		return reasonSelector
	}
	if slices.ContainsFunc(n.Taints, func(t kubeTaint) bool { return t.repels() && !slices.ContainsFunc(r.Tolerations, t.toleratedBy) }) {
		return reasonTaint
	}
	return ""
}

// met says whether a node is as a term wants it. A term without expressions matches none.
func (t kubeTerm) met(name string, n kubeNode) bool {
	if len(t.Expressions)+len(t.Fields) == 0 {
		return false
	}
	for _, e := range t.Expressions {
		value, there := n.Labels[e.Key]
		if !e.met(value, there) {
			return false
		}
	}
	for _, e := range t.Fields {
		if e.Key != "metadata.name" || !e.met(name, true) {
			return false
		}
	}
	return true
}

func (e kubeExpression) met(value string, there bool) bool {
	switch e.Operator {
	case "In":
		return there && slices.Contains(e.Values, value)
	case "NotIn":
		return !there || !slices.Contains(e.Values, value)
	case "Exists":
		return there
	case "DoesNotExist":
		return !there
	case "Gt", "Lt":
		if len(e.Values) != 1 || !there {
			return false
		}
		has, err1 := strconv.ParseInt(value, 10, 64)
		bound, err2 := strconv.ParseInt(e.Values[0], 10, 64)
		return err1 == nil && err2 == nil && (e.Operator == "Gt" && has > bound || e.Operator == "Lt" && has < bound)
	}
	return false
}

// repels is false of a taint that the scheduler only likes less.
func (t kubeTaint) repels() bool { return t.Effect == "NoSchedule" || t.Effect == "NoExecute" }

func (t kubeTaint) toleratedBy(of kubeToleration) bool {
	switch {
	case of.Effect != "" && of.Effect != t.Effect:
		return false
	case of.Key == "":
		return of.Operator == "Exists"
	case of.Key != t.Key:
		return false
	}
	return of.Operator == "Exists" || of.Value == t.Value
}

// wheres are the rules of jobs as the nodes of a list see them: one for equal rules.
type wheres struct {
	nodes *Nodes
	known map[string]*placement.Where
}

// of returns nil where no node bars the pod.
func (w *wheres) of(r *kubeRules) *placement.Where {
	key, err := json.Marshal(r) // strings alone, map keys in order
	if err != nil {
		return nil
	}
	where, known := w.known[string(key)]
	if known {
		return where
	}
	barred := map[string]placement.Reason{}
	for name, n := range w.nodes.kube {
		if why := r.bar(name, n); why != "" {
			barred[name] = why
		}
	}
	if len(barred) > 0 {
		where = &placement.Where{Barred: barred}
	}
	w.known[string(key)] = where
	return where
}

// Bind lets the jobs of a list keep to what they say of nodes, and nodes to what they say
// of jobs, as far as both lists are a cluster's. What it cannot is noted.
func Bind(nodes *Nodes, jobs *Jobs) {
	w := wheres{nodes, map[string]*placement.Where{}}
	choosy := 0
	counted := map[string]*struct{ asked, running int }{}
	for i := range jobs.Jobs {
		j := &jobs.Jobs[i]
		if j.rules == nil {
			continue
		}
		for name := range j.Counted {
			c := counted[name]
			if c == nil {
				c = &struct{ asked, running int }{}
				counted[name] = c
			}
			if c.asked++; j.Node != "" {
				c.running++
			}
		}
		if nodes.kube != nil {
			j.Where = w.of(j.rules)
		} else if len(j.rules.Selector)+len(j.rules.Terms) > 0 {
			choosy++
		}
	}
	if choosy > 0 {
		note(&jobs.Notes, "%s: %d pods with node selectors or affinity: not considered, the list of nodes has no labels", jobs.File, choosy)
	}
	// What pods hold that run and no node lists is given by something else than the
	// scheduler.
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		c := counted[name]
		listed := slices.ContainsFunc(nodes.Nodes, func(n placement.Node) bool { _, is := n.Counted[name]; return is })
		if listed || !strings.Contains(name, "/") || nodes.kube != nil && c.running == 0 {
			continue
		}
		note(&jobs.Notes, "%s: %d pods ask for %s, which no node lists: not considered", jobs.File, c.asked, name)
		for i := range jobs.Jobs {
			delete(jobs.Jobs[i].Counted, name)
		}
	}
}

// Loose makes a job that is described in words one that a cluster's nodes take: a pod like
// others, that tolerates what keeps others off GPUs if it asks for one.
func Loose(nodes *Nodes, r *placement.Request) {
	if nodes.kube == nil {
		return
	}
	rules := &kubeRules{}
	if r.GPUs > 0 {
		for _, v := range vendors {
			rules.Tolerations = append(rules.Tolerations, kubeToleration{Key: v.resource, Operator: "Exists"})
		}
	}
	w := wheres{nodes, map[string]*placement.Where{}}
	r.Counted, r.Where = placement.Counted{resourcePods: 1}, w.of(rules)
	if r.Where != nil {
		note(&nodes.Notes, "%d nodes have taints that the job does not tolerate", len(r.Where.Barred))
	}
}

// tally counts what is left out, by what it is.
type tally map[string]int

// notes are its lines: "FILE: 14 pods with anti-affinity: not considered".
func (t tally) notes(file string, notes *[]string) {
	for _, what := range slices.Sorted(maps.Keys(t)) {
		note(notes, "%s: %s", file, fmt.Sprintf(what, t[what]))
	}
}
