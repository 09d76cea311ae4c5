// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
	"github.com/divvy-gpu/divvy/internal/size"
)

// planFits answers whether one job more fits. Not fitting is code 4, like
// every lack of room.
func (a *app) planFits(f *planFlags) error {
	job, err := askedJob(f.fits, f.jobLists)
	if err != nil {
		return withHint(usage(err), "--fits cpu=4,mem=16GiB,gpus=1,cores=30,gpu-mem=8GiB")
	}
	if strings.Contains(f.fits, "=") {
		trace.Loose(f.nodeList, &job)
	}
	question := plan.Fits{
		Fleet:  plan.Fleet{Nodes: f.nodeList.Nodes, KeepPercent: f.keepNodes},
		Rules:  plan.Rules{QuotaMilli: f.quotaMilli, Prefer: f.prefer, Requires: f.requires},
		Jobs:   f.jobLists[0],
		Policy: f.policies[0], Seed: f.seedList[0], Job: job,
	}
	answer, err := question.Run()
	if err != nil {
		return usage(err)
	}
	notes := append(f.notes(), answer.Misplaced...)
	for _, n := range notes {
		a.note("%s", n)
	}
	if f.asJSON {
		err = a.writeJSON(struct {
			Schema   string `json:"schema"`
			Computed bool   `json:"computed"`
			*plan.Answer
			Notes []string `json:"notes"`
		}{"divvy.plan.fits/v1", true, answer, slices.Grow(notes, 1)})
	} else {
		err = a.writeAnswer(answer)
	}
	if err == nil && !answer.Fits {
		return &exitError{exitNotAllowed}
	}
	return err
}

func (a *app) writeAnswer(x *plan.Answer) error {
	there := fmt.Sprintf("beside the %d jobs that are there", x.Placed)
	if x.Unplaced > 0 {
		there += fmt.Sprintf(" (%d more wait)", x.Unplaced)
	}
	if x.Fits {
		where := "node " + x.Node
		if len(x.Cards) > 0 {
			where += fmt.Sprintf(", GPU %s", strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x.Cards)), ", "), "[]"))
		}
		if x.Start != nil {
			where += fmt.Sprintf(", from memory unit %d", *x.Start)
		}
		_, err := fmt.Fprintf(a.stdout, "%s fits on %s, %s\n", x.Job, where, there)
		return err
	}
	fmt.Fprintf(a.stdout, "%s does not fit %s\n\nWhat blocks it:\n", x.Job, there)
	t := newTable("REASON", "NODES", "ONLY REASON ON")
	for _, b := range x.Blockers {
		t.add(b.Reason, strconv.Itoa(b.Nodes), strconv.Itoa(b.Alone))
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	if len(x.Changes) == 0 {
		_, err := fmt.Fprintln(a.stdout, "\nNo single change makes room for it.")
		return err
	}
	fmt.Fprintln(a.stdout, "\nEach of these alone makes room for it:")
	for _, c := range x.Changes {
		fmt.Fprintf(a.stdout, "  - %s\n", c)
	}
	return nil
}

// askedJob reads a job: a name from the lists, or words with = in them.
func askedJob(text string, lists []*trace.Jobs) (placement.Request, error) {
	for _, list := range lists {
		for _, j := range list.Jobs {
			if j.Name == text {
				return j.Request, nil
			}
		}
	}
	r := placement.Request{Name: "the job"}
	if !strings.Contains(text, "=") {
		return r, fmt.Errorf("--fits %s: no job of that name in the lists", text)
	}
	cores := ""
	for _, word := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "cpu":
			var n float64
			n, err = strconv.ParseFloat(value, 64)
			if err == nil && !(n >= 0 && n < 1e6) {
				err = fmt.Errorf("out of range")
			}
			r.CPUMilli = int64(n * 1000)
		case "mem":
			r.MemoryMiB, err = mebibytes(value)
		case "gpus":
			r.GPUs, err = strconv.Atoi(value)
		case "cores":
			cores = value
		case "gpu-mem":
			r.GPUMemoryMiB, err = mebibytes(value)
		case "model":
			r.Models = strings.Split(value, "|")
		case "profile":
			r.Profile = value
		case "linked":
			r.Linked, err = strconv.ParseBool(value)
		case "tenant":
			r.Tenant = value
		case "name":
			r.Name = value
		default:
			return r, fmt.Errorf("--fits: %q is not one of cpu, mem, gpus, cores, gpu-mem, model, profile, linked, tenant, name", key)
		}
		if err != nil {
			return r, fmt.Errorf("--fits: %s: %w", word, err)
		}
	}
	parts := cores != "" || r.GPUMemoryMiB > 0
	if r.GPUs == 0 && (parts || r.Profile != "") {
		r.GPUs = 1
	}
	switch {
	case r.GPUs > 0 && r.Profile == "" && cores == "" && parts:
		r.GPUMilli = 1 // memory without cores is a promise of memory alone
	case cores != "":
		percent, err := strconv.ParseFloat(strings.TrimSuffix(cores, "%"), 64)
		if err != nil || !(percent > 0 && percent <= 100) {
			return r, fmt.Errorf("--fits: cores=%s is not between 0 and 100", cores)
		}
		r.GPUMilli = max(1, int64(percent*10))
	case r.GPUs > 0 && r.Profile == "":
		r.GPUMilli = placement.WholeCard
	}
	return r, r.Validate()
}

func mebibytes(text string) (int64, error) {
	bytes, err := size.Parse(text)
	if err != nil {
		return 0, err
	}
	return int64(bytes >> 20), nil
}
