// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// timetable is `divvy advise --job FILE --json`.
type timetable struct {
	Schema string         `json:"schema"`
	Card   string         `json:"card,omitempty"`
	Jobs   []timetableJob `json:"jobs"`
}

type timetableJob struct {
	Name  string        `json:"name"`
	Model string        `json:"model"`
	Steps []advise.Step `json:"steps"`
	End   []string      `json:"end"` // commands, after the last stage
}

// diskRate reads --disk in bytes per second.
func (f *adviseFlags) diskRate() (float64, error) {
	x, err := estimate.ParseFigure(strings.TrimSuffix(f.disk, "/s"), estimate.Bytes)
	if err != nil || x <= 0 {
		return 0, usage(fmt.Errorf("--disk %s is no rate like 1GB/s", f.disk))
	}
	return x, nil
}

// Bytes of a checkpoint for each parameter: weights, and what the optimizer keeps
// (docs/estimate.md, "Bytes of a parameter").
const (
	weightBytes = 2
	stateBytes  = 12
)

// saving is how long a checkpoint takes; nil: its size is not known.
func (f *adviseFlags) saving(x *advise.Advice) (*advise.Checkpoint, error) {
	rate, err := f.diskRate()
	if err != nil {
		return nil, err
	}
	bytes, of := f.savedBytes, f.savedOf
	if bytes == 0 {
		bytes, of = float64(x.Facts.MemoryBytes), "all of its memory"
	}
	if bytes == 0 {
		return nil, nil
	}
	c := advise.Save(bytes, of, rate)
	return &c, nil
}

func (a *app) writeCheckpoint(c *advise.Checkpoint) {
	if c == nil {
		fmt.Fprintln(a.stdout, "  how long: with --model, the size of a checkpoint is estimated")
		return
	}
	text := "others can have the GPU's time meanwhile"
	if !c.Pause {
		text = "less than a turn: do not pause it"
	}
	a.paragraph("  how long: ", "    ", fmt.Sprintf("%.3g GB of %s at %.3g GB/s (--disk) take %s; %s", c.Bytes/1e9, c.Of, c.BytesPerSecond/1e9,
		estimate.Figure(c.Seconds, estimate.Seconds), text))
}

// adviseJob prints the stages of jobs one after the other: when, what each needs,
// what others can have meanwhile.
func (a *app) adviseJob(ctx context.Context, f *adviseFlags) error {
	raw, err := a.readBounded(f.job)
	if err != nil {
		return err
	}
	jobs, err := advise.ParseJobs(raw)
	if err != nil {
		return usage(fmt.Errorf("%s: %w", f.job, err))
	}
	rate, err := f.diskRate()
	if err != nil {
		return err
	}
	file, err := reference.Default()
	if err != nil {
		return err
	}
	card, err := a.jobCard(ctx, f, &jobs, file)
	if err != nil {
		return err
	}
	out := timetable{Schema: "divvy.timetable/v1", Jobs: []timetableJob{}}
	visible := uint64(0)
	if card != nil {
		k := estimate.Default()
		out.Card, visible = card.Name, uint64(card.Visible(&k).Mid)
	}
	for _, job := range jobs.Jobs {
		model, ok := file.ModelNamed(job.Model)
		if !ok {
			return usage(withHint(fmt.Errorf("job %s: %w", job.Name, file.UnknownModel(job.Model)), "divvy estimate models"))
		}
		steps, err := jobSteps(&job, model, card, rate)
		if err != nil {
			return usage(fmt.Errorf("job %s: %w", job.Name, err))
		}
		table, end := advise.Timetable(job.Name, steps, visible)
		out.Jobs = append(out.Jobs, timetableJob{job.Name, model.Name, table, end})
	}
	if f.asJSON {
		return a.writeJSON(out)
	}
	return a.writeTimetable(&out)
}

// jobCard is the kind of card that jobs run on.
func (a *app) jobCard(ctx context.Context, f *adviseFlags, jobs *advise.Jobs, file *reference.File) (*estimate.Datasheet, error) {
	if jobs.Card != "" {
		kinds := file.CardsNamed(jobs.Card)
		if len(kinds) == 0 {
			return nil, usage(withHint(fmt.Errorf("gpuModel %q is not known", jobs.Card), "divvy estimate cards"))
		}
		return kinds[0], nil
	}
	inv, err := a.adviseCards(ctx, f, file)
	if err != nil {
		return nil, err
	}
	if card := largestCard(inv, file); card != nil {
		return card, nil
	}
	return nil, usage(errors.New("no GPU here is known: gpuModel: NAME in the file says which is meant"))
}

// jobSteps estimates the stages of a job.
func jobSteps(job *advise.Job, model *estimate.Model, card *estimate.Datasheet, disk float64) ([]advise.Step, error) {
	e := estimate.New()
	var steps []advise.Step
	last := advise.Step{}
	saved := float64(model.Total()) * weightBytes
	for _, s := range job.Stages {
		step := advise.Step{Stage: s.Stage, Seconds: s.Hours * 3600, Bytes: last.Bytes, Cards: max(last.Cards, 1)}
		if s.Hours > 0 {
			step.From = "as given"
		}
		switch s.Stage {
		case "pretrain", "finetune":
			r, err := jobTraining(e, job, &s, model, card)
			if err != nil {
				return nil, err
			}
			step.Bytes, step.Cards = uint64(r.Memory.Total.Mid), r.Cards
			if s.Tokens != "" && r.Timed {
				tokens, err := count("tokens", s.Tokens)
				if err != nil {
					return nil, err
				}
				step.Seconds = tokens / (r.Rate.Mid * float64(r.Cards))
				step.From = fmt.Sprintf("%s tokens at %s a GPU", s.Tokens, estimate.Figure(r.Rate.Mid, estimate.PerSecond))
			}
			saved = float64(model.Total()) * (weightBytes + stateBytes)
			if s.LoRA > 0 {
				saved = adapterBytes(&r)
			}
		case "validate", "serve":
			ef := estimateFlags{kind: ofServing, precision: job.Precision, isl: advisedTokens, osl: advisedTokens, concurrency: advisedRequests, gpus: job.Cards}
			q, err := ef.serving(model, card)
			if err != nil {
				return nil, err
			}
			ask := e.ServeFewest
			if job.Cards > 0 {
				ask = e.ServeBest
			}
			r, err := ask(q)
			if err != nil {
				return nil, err
			}
			step.Bytes, step.Cards = uint64(r.Memory.Total.Mid), r.Cards
		case "checkpoint":
			if step.Seconds == 0 {
				step.Seconds = advise.Save(saved, "", disk).Seconds
				step.From = fmt.Sprintf("%.3g GB at %.3g GB/s", saved/1e9, disk/1e9)
			}
		}
		steps = append(steps, step)
		last = step
	}
	return steps, nil
}

// adapterBytes is what adapters take of a card, states and all.
func adapterBytes(r *estimate.TrainingResult) float64 {
	for _, p := range r.Memory.Parts {
		if p.Name == "adapters" {
			return p.Mid
		}
	}
	return 0
}

func jobTraining(e *estimate.Estimator, job *advise.Job, s *advise.Stage, model *estimate.Model, card *estimate.Datasheet) (estimate.TrainingResult, error) {
	ef := estimateFlags{kind: ofTraining, precision: job.Precision, seq: advisedSequence, optimizer: "adamw", offload: "none", gpus: job.Cards}
	if s.Stage == "finetune" {
		ef.kind, ef.lora, ef.fused = ofTuning, s.LoRA, true
	}
	q, err := ef.training(model, card)
	if err != nil {
		return estimate.TrainingResult{}, err
	}
	if job.Cards > 0 {
		return e.TrainBest(q)
	}
	return e.TrainFewest(q)
}

func (a *app) writeTimetable(t *timetable) error {
	for i, j := range t.Jobs {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintf(a.stdout, "%s: %s on %s\n", j.Name, j.Model, t.Card)
		table := newTable("AFTER", "STAGE", "TAKES", "GPUS", "OF EACH", "OTHERS CAN HAVE")
		for _, s := range j.Steps {
			takes := "no end given"
			if s.Seconds > 0 {
				takes = estimate.Figure(s.Seconds, estimate.Seconds)
			}
			after := "0"
			if s.Start > 0 {
				after = estimate.Figure(s.Start, estimate.Seconds)
			}
			table.add(after, s.Stage, takes, fmt.Sprint(s.Cards), gibs(float64(s.Bytes)), s.Others)
		}
		if err := table.write(a.stdout); err != nil {
			return err
		}
		for _, s := range j.Steps {
			a.writeCommands(s.Stage, s.Commands)
		}
		a.writeCommands("after the last stage", j.End)
	}
	return nil
}

func (a *app) writeCommands(when string, commands []string) {
	if len(commands) > 0 {
		fmt.Fprintf(a.stdout, "  # %s\n", when)
	}
	for _, command := range commands {
		a.writeCommand(command)
	}
}
