// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// TestApplyGoals: from nothing to a mix, to seven small ones, which waits for
// the process that uses one; what is as wanted is not touched.
func TestApplyGoals(t *testing.T) {
	fake := &fakekernel.Driver{}
	cards := opened(t, fake)
	path := filepath.Join(t.TempDir(), "deeper/journal")
	apply := func(devices map[string]int) (string, error) {
		var out, complaints bytes.Buffer
		a := &app{stdout: &out, stderr: &complaints, getenv: func(string) string { return "" }}
		log, err := a.openJournal(path)
		if err != nil {
			return "", err
		}
		defer func() {
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		}()
		goal := partition.Goal{Schema: partition.SchemaGoal, Cards: []partition.Rule{{Wants: partition.Wants{partition.TechniqueMIG: &mig.Goal{Enabled: true, Devices: devices}}}}}
		err = a.applyGoal(t.Context(), cards, partition.Planner{Techniques: cards.Techniques}, goal, log, false)
		return out.String(), err
	}
	layout := func() string {
		c, err := cards.Observe(t.Context(), fakekernel.UUID)
		if err != nil {
			t.Fatal(err)
		}
		return c.Layout()
	}
	mix := map[string]int{"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
	if out, err := apply(mix); err != nil || !strings.Contains(out, "done: 9 steps, verified") {
		t.Fatalf("%v\n%s", err, out)
	}
	before := layout()
	if before != "MIG on 00:2g.20gb[2] 02:1g.10gb[1] 03:1g.10gb[1] 04:3g.40gb[3]" {
		t.Errorf("the mix: %s", before)
	}
	asked := fake.Changes
	if out, err := apply(mix); err != nil || !strings.Contains(out, "nothing to do") || fake.Changes != asked {
		t.Errorf("again: %v, %d changes\n%s", err, fake.Changes-asked, out)
	}
	used := fake.Find(2, 4)
	fake.MIGNow.Instances[used].Processes = []int{os.Getpid()}
	out, err := apply(map[string]int{"1g.10gb": 7})
	if exitCode(err) != exitNotAllowed || !strings.Contains(out, fmt.Sprintf("3g.40gb at 4 is used by %d (cli.test)", os.Getpid())) || layout() != before || fake.Changes != asked {
		t.Errorf("in use: %v\n%s", err, out)
	}
	fake.MIGNow.Instances[used].Processes = nil
	if out, err := apply(map[string]int{"1g.10gb": 7}); err != nil || strings.Count(layout(), "1g.10gb[1]") != 7 {
		t.Errorf("then: %v\n%s\n%s", err, out, layout())
	}

	// One apply at a time.
	log, err := machine.OpenJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply(mix); exitCode(err) != exitNotAllowed {
		t.Errorf("beside another: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// opened are the cards of a driver alone.
func opened(t *testing.T, source mig.Source) *machine.Machine {
	t.Helper()
	products, err := facts.Default()
	if err != nil {
		t.Fatal(err)
	}
	cards, err := machine.Open(machine.Config{Products: products, Library: func() (mig.Source, func() error, error) {
		return source, func() error { return nil }, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return cards
}

// TestInterruptedApply: what a dead apply left in the journal is ended first.
func TestInterruptedApply(t *testing.T) {
	fake := &fakekernel.Driver{MIGNow: nvml.MIG{On: true, Pending: true}, Left: 4}
	cards := opened(t, fake)
	path := filepath.Join(t.TempDir(), "journal")
	apply := func(rules ...partition.Rule) (string, error) {
		var notes bytes.Buffer
		a := &app{stdout: &bytes.Buffer{}, stderr: &notes, getenv: func(string) string { return "" }}
		log, err := a.openJournal(path)
		if err != nil {
			t.Fatal(err)
		}
		err = a.applyGoal(t.Context(), cards, partition.Planner{Techniques: cards.Techniques}, partition.Goal{Schema: partition.SchemaGoal, Cards: rules}, log, false)
		return notes.String(), errors.Join(err, log.Close())
	}
	three := partition.Rule{Wants: partition.Wants{partition.TechniqueMIG: &mig.Goal{Enabled: true, Devices: map[string]int{"1g.10gb": 3}}}}
	if _, err := apply(three); err == nil || len(fake.MIGNow.Instances) == 0 {
		t.Fatalf("it did not die: %v, %+v", err, fake.MIGNow)
	}
	fake.Dead = false
	notes, err := apply()
	if err != nil {
		t.Fatal(err)
	}
	if len(fake.MIGNow.Instances) != 0 || !strings.Contains(notes, "an interrupted apply on "+fakekernel.UUID+" is undone") {
		t.Errorf("%+v\n%s", fake.MIGNow, notes)
	}
}
