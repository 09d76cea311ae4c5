// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// booked is a host with an agent whose card is in MIG mode, without an instance.
func booked(t *testing.T) (d *divided, card, cdi string) {
	t.Helper()
	cdi = filepath.Join(t.TempDir(), "cdi")
	d = &divided{host: newHost(t, hostOptions{cards: "H100-80GB", agentFlags: []string{"--cdi-dir", cdi}})}
	d.journal = filepath.Join(d.directory, "partition.journal")
	d.apply(t, d.goal(t, "1g.10gb: 0"), 0, "--agent", d.AgentSocket)
	devices, err := d.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d, devices.Cards[0].UUID, cdi
}

// denied wants an error of the agent with a code, that says something.
func denied(t *testing.T, err error, code api.Code, says string) {
	t.Helper()
	var failure *api.Error
	if !errors.As(err, &failure) || failure.Code != code || !strings.Contains(failure.Message, says) {
		t.Errorf("%v, want %s with %q", err, code, says)
	}
}

// TestBookedInstances: MIG instances are made and destroyed one by one through the agent: programs
// compute in them, what is in use stays, divvy partition apply leaves them, containers have them
// by their names, and the next agent knows them.
func TestBookedInstances(t *testing.T) {
	d, card, cdi := booked(t)
	ensure := func(name, profile string, start *int) (api.Instance, bool, error) {
		return d.client.EnsureInstance(t.Context(), api.InstanceSpec{Name: name, GPU: card, Profile: profile, Start: start})
	}
	need := func(name, profile string, start *int, isNew bool) api.Instance {
		t.Helper()
		i, made, err := ensure(name, profile, start)
		if err != nil || made != isNew || len(i.Devices) != 1 || i.CDIDevice != "divvy.dev/instance="+name {
			t.Fatalf("%s: %+v, made %v, %v", name, i, made, err)
		}
		return i
	}
	first := 0
	one, two := need("one", "3g.40gb", nil, true), need("two", "1g.10gb", &first, true)
	need("one", "3g.40gb", nil, false)
	if got := d.layout(t); got != "mig true 0:1g.10gb[1] 4:3g.40gb[3]" {
		t.Errorf("after two: %s", got)
	}
	_, _, err := ensure("whole", "7g.80gb", nil)
	denied(t, err, api.CodeNoRoom, "7g.80gb")
	_, _, err = ensure("one", "1g.10gb", nil)
	denied(t, err, api.CodeExists, "3g.40gb at 4")
	if _, err := runExample(t, d.inside(two.Devices[0]), "vectoradd"); err != nil {
		t.Error(err)
	}
	if got := d.apply(t, d.goal(t, seven), 4, "--agent", d.AgentSocket); !strings.Contains(got.stdout, "3g.40gb at 4 is booked by one") {
		t.Errorf("%s%s", got.stdout, got.stderr)
	}
	file := filepath.Join(cdi, "divvy.dev-instance_two.json")
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "CUDA_VISIBLE_DEVICES="+two.Devices[0]) {
		t.Errorf("%s, %v", text, err)
	}

	user := d.holderIn(t, d.inside(one.Devices[0]))
	do(t, user, "start")
	denied(t, d.client.DeleteInstance(t.Context(), "one"), api.CodeNotAllowed, "in use")
	user.Kill()
	eventually(t, "the instance is free", func() error { return d.client.DeleteInstance(t.Context(), "one") }, d.simulator)
	denied(t, d.client.DeleteInstance(t.Context(), "one"), api.CodeNotFound, "one")

	// As after a reboot the file is gone.
	d.killAgent(t)
	if err := os.Remove(file); err != nil {
		t.Error(err)
	}
	d.startAgent(t)
	eventually(t, "the next agent knows the instance", func() error {
		all, err := d.client.Instances(t.Context())
		if err != nil {
			return err
		}
		if len(all.Instances) != 1 || all.Instances[0].Name != "two" || len(all.Cards) != 1 || len(all.Cards[0].Has) != 1 || all.Cards[0].Has[0].Name != "two" {
			return fmt.Errorf("%+v", all)
		}
		_, err = os.Stat(file)
		return err
	}, d.agent)
	need("two", "1g.10gb", &first, false)
	if err := d.client.DeleteInstance(t.Context(), "two"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
	if got := d.layout(t); got != "mig true" {
		t.Errorf("in the end: %s", got)
	}
	if got := d.apply(t, d.nothing(t), 0); got.stderr != "" {
		t.Errorf("something was left in the journal: %s", got.stderr)
	}
}

// TestKilledMaking: an agent that is killed while it makes and destroys instances leaves those that
// it lists, and another's.
func TestKilledMaking(t *testing.T) {
	d, card, _ := booked(t)
	d.apply(t, d.goal(t, "1g.10gb: 1"), 0, "--agent", d.AgentSocket)
	before, start := d.layout(t), 0
	for round := range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				if _, _, err := d.client.EnsureInstance(ctx, api.InstanceSpec{Name: "pod", GPU: card, Profile: "3g.40gb", Start: &start}); err == nil {
					_ = d.client.DeleteInstance(ctx, "pod")
				}
			}
		}()
		<-time.After(time.Duration(30+7*round) * time.Millisecond)
		d.killAgent(t)
		cancel()
		<-ended
		d.startAgent(t)
		eventually(t, "what is listed is there", func() error {
			all, err := d.client.Instances(t.Context())
			if err != nil {
				return err
			}
			want := before
			if len(all.Instances) > 0 {
				want = strings.Replace(before, "mig true", "mig true 0:3g.40gb[3]", 1)
			}
			if now := d.layout(t); now != want {
				return fmt.Errorf("%s, and %+v is listed", now, all.Instances)
			}
			return nil
		}, d.agent)
	}
}
