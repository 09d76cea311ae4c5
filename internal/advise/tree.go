// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"slices"
	"strings"
)

// Tree is all rules as text, in the order in which they count.
func Tree() string {
	var b strings.Builder
	group := ""
	for _, r := range allRules() {
		if r.Group == groupKubernetes && group != groupKubernetes { // room is with the hardware
			for _, room := range roomRules {
				fmt.Fprintf(&b, "  if %s\n    no  [%s]\n    (%s)\n", room.Text, room.ID, room.Source)
			}
		}
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "%s\n", group)
		}
		fmt.Fprintf(&b, "  if %s\n", conditionsInWords(r.When))
		fmt.Fprintf(&b, "    %s: %s  [%s]\n", r.Says, strings.Join(r.Techniques, ", "), r.ID)
		fmt.Fprintf(&b, "    %s\n", inGeneral.Replace(r.Text))
		fmt.Fprintf(&b, "    (%s)\n", r.Source)
	}
	b.WriteString("9. Then, by workload: the first that is left, and the second\n")
	for _, p := range preferences {
		fmt.Fprintf(&b, "  if %s\n", conditionsInWords(p.When))
		fmt.Fprintf(&b, "    %s  [%s]\n", strings.Join(p.Order, " > "), p.ID)
		if p.Why != "" {
			fmt.Fprintf(&b, "    %s\n", p.Why)
		}
		fmt.Fprintf(&b, "    (%s)\n", p.Source)
	}
	fmt.Fprintf(&b, "  else one that is suited less  [%s]\n", left.Rule)
	b.WriteString("10. By stage of a model's life\n")
	for _, s := range stages {
		n := stageNeeds[s]
		fmt.Fprintf(&b, "  %s\n    needs %s\n    frees %s\n    %s\n", s, n.Needs, n.Frees, n.How)
	}
	b.WriteString("11. What operators of clusters advise, who disagree\n")
	for _, g := range guides {
		fmt.Fprintf(&b, "  %s  [%s]\n    (%s)\n", g.Text, g.Rule, g.Source)
	}
	return b.String()
}

// inGeneral words a rule without a case's figures.
var inGeneral = strings.NewReplacer("{p99} at", "a latency at", "{alone}", "so long", "{share}", "that size", "{least}", "what an instance takes at least", "{memory}", "one instance")

// allRules are the filters, what workloads rule out, and what moves techniques.
func allRules() []Rule {
	var all []Rule
	all = append(all, rules...)
	for _, n := range nudges {
		r := n.Rule
		switch {
		case n.Places < 0:
			r.Says = "sooner"
		case n.Places > 0:
			r.Says = "later"
		default:
			r.Says = Notes
		}
		all = append(all, r)
	}
	return all
}

// Rules lists every rule that can be a reason, with its source.
func Rules() []Reason {
	var all []Reason
	for _, r := range slices.Concat(allRules(), roomRules) {
		all = append(all, Reason{r.ID, inGeneral.Replace(r.Text), r.Source})
	}
	for _, p := range preferences {
		all = append(all, Reason{p.ID, p.Why, p.Source})
	}
	all = append(all, left)
	return append(all, guides...)
}

// said are the words of a case as people say them; those of the workload, the
// tree says itself.
var said = map[string]string{
	"tenants strangers": "tenants do not trust each other", "tenants trusted": "tenants trust each other", "tenants trusted or strangers": "there are several owners",
	"in vm": "it runs in a virtual machine", "in container": "in a container", "in kubernetes": "in Kubernetes",
	"licence no": "there is no vGPU licence", "one-card no": "one instance takes more than one GPU", "share-size too-small": "the share is smaller than weights and context",
	"wsl yes": "Linux runs under Windows", "move yes": "p99 is below one move of a share", "movable-built no": "this version moves no shares",
	"remote-built no": "this version reaches no remote GPU", "kubernetes-built no": "this version has no divvy-kube",
	"neighbours none": "p99 is under twice a token alone, and they are busy at once",
	"p99 tight":       "p99 is under twice a token alone and a turn", "p99 none": "no latency is promised",
	"dra before-1.34": "Kubernetes is older than 1.34", "dra unknown": "its version is not known", "dra from-1.34": "Kubernetes is 1.34 or 1.35", "dra from-1.36": "Kubernetes is 1.36 or later",
	"size large": "one instance takes over half of a GPU", "busy seldom": "they are seldom busy at once", "busy at-once": "they are busy at once",
	"memory over": "together they are larger than the GPUs", "memory fits": "together they fit the GPUs", "display no": "no GPU here has both MIG and a display",
	"changes hourly": "parts change by the hour", "bound compute": "computing limits it", "bound memory": "memory limits it", "bound mixed": "both limit it",
	"aim latency": "latency matters", "aim throughput": "throughput matters", "aim availability": "availability matters",
	"place cloud": "it is in a cloud", "place edge": "it is at the edge", "place cluster": "it is in a cluster",
}

func conditionsInWords(all Conditions) string {
	if len(all) == 0 {
		return "anything else"
	}
	var words []string
	for _, c := range all {
		if c.Fact == "workload" {
			words = append(words, "the workload is "+strings.Join(c.Is, " or "))
			continue
		}
		if text := said[c.Fact+" "+strings.Join(c.Is, " or ")]; text != "" {
			words = append(words, text)
			continue
		}
		var these []string
		for _, word := range c.Is {
			these = append(these, said[c.Fact+" "+word])
		}
		words = append(words, strings.Join(these, " or "))
	}
	return strings.Join(words, ", and ")
}

// Mermaid is the same as a picture: what is asked, in order, and where the
// answers lead. What rules only remark is in the text alone.
func Mermaid() string {
	p := picture{}
	p.b.WriteString("flowchart TD\n")
	for _, r := range allRules() {
		if r.Group == groupTies && p.title == groupWorkload {
			p.step(byWorkload)
			for _, preference := range preferences {
				p.leaf(conditionsInWords(preference.When), strings.Join(preference.Order, " > "))
			}
		}
		if r.Group != p.title {
			if p.title == groupHardware {
				for _, room := range roomRules {
					p.answer(room.Text, Denies, []string{"that technique"})
				}
			}
			p.step(r.Group)
		}
		if r.Says != Notes {
			p.answer(conditionsInWords(r.When), r.Says, r.Techniques)
		}
	}
	p.step("10. By stage of a model's life")
	for _, s := range stages {
		p.leaf(s, "needs "+stageNeeds[s].Needs)
	}
	return p.b.String()
}

// byWorkload is where the order of techniques comes from.
const byWorkload = "9. By workload: the first that is left"

// picture is a flow chart that is being drawn.
type picture struct {
	b       strings.Builder
	title   string // of the last step
	steps   int
	leaves  int
	pending []answer
}

type answer struct {
	when       string
	says       Says
	techniques []string
}

// step begins the next question.
func (p *picture) step(title string) {
	p.flush()
	p.title = title
	fmt.Fprintf(&p.b, "  g%d[\"%s\"]\n", p.steps, title)
	if p.steps > 0 {
		fmt.Fprintf(&p.b, "  g%d --> g%d\n", p.steps-1, p.steps)
	}
	p.steps++
}

// answer keeps what a rule says; those with the same condition are one leaf.
func (p *picture) answer(when string, says Says, techniques []string) {
	for i := range p.pending {
		if a := &p.pending[i]; a.when == when && a.says == says {
			a.techniques = append(a.techniques, techniques...)
			return
		}
	}
	p.pending = append(p.pending, answer{when, says, slices.Clone(techniques)})
}

func (p *picture) leaf(when, text string) {
	fmt.Fprintf(&p.b, "  g%d -->|\"%s\"| l%d[\"%s\"]\n", p.steps-1, when, p.leaves, text)
	p.leaves++
}

func (p *picture) flush() {
	for _, a := range p.pending {
		p.leaf(a.when, fmt.Sprintf("%s: %s", a.says, strings.Join(a.techniques, ", ")))
	}
	p.pending = nil
}
