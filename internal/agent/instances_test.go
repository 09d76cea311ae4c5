// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
)

// fakeInstances remembers what it was asked for, and fails to settle a few times.
type fakeInstances struct {
	made     map[string]api.InstanceSpec
	failures int
	settled  chan struct{} // closed when it has
}

func (f *fakeInstances) Ensure(_ context.Context, spec api.InstanceSpec) (api.Instance, bool, error) {
	_, known := f.made[spec.Name]
	f.made[spec.Name] = spec
	return api.Instance{InstanceSpec: spec, Devices: []string{"MIG-1"}}, !known, nil
}

func (f *fakeInstances) Delete(_ context.Context, name string) error {
	if _, known := f.made[name]; !known {
		return &api.Error{Code: api.CodeNotFound, Message: "no " + name}
	}
	delete(f.made, name)
	return nil
}

func (f *fakeInstances) List(context.Context) (all api.Instances, err error) {
	for _, spec := range f.made {
		all.Instances = append(all.Instances, api.Instance{InstanceSpec: spec})
	}
	return all, nil
}

func (f *fakeInstances) Settle(context.Context) error {
	if f.failures--; f.failures >= 0 {
		return errors.New("the driver does not answer")
	}
	close(f.settled)
	return nil
}

func TestInstances(t *testing.T) {
	fake := &fakeInstances{made: map[string]api.InstanceSpec{}, settled: make(chan struct{})}
	r := newRig(t, func(c *Config) { c.Instances = fake })
	<-fake.settled
	start := 4
	spec := api.InstanceSpec{Name: "pod", GPU: testUUID, Profile: "3g.40gb", Start: &start, Labels: share.Labels{"claim": "c-1"}}
	for i, want := range []bool{true, false} {
		got, made, err := r.client.EnsureInstance(t.Context(), spec)
		if err != nil || made != want || got.Name != "pod" || *got.Start != 4 || got.Devices[0] != "MIG-1" {
			t.Errorf("request %d: %+v, made %v, %v", i, got, made, err)
		}
	}
	_, _, err := r.client.EnsureInstance(t.Context(), api.InstanceSpec{Name: "other", GPU: testUUID, Profile: "1g.10gb"})
	must(t, err)
	mine, err := r.client.Labelled(share.Labels{"claim": "c-1"}).Instances(t.Context())
	if err != nil || mine.Schema != api.SchemaInstances || len(mine.Instances) != 1 || mine.Instances[0].Name != "pod" {
		t.Errorf("%+v, %v", mine, err)
	}
	for name, c := range map[string]struct {
		change func(*api.InstanceSpec)
		code   api.Code
		says   string
	}{
		"no name":      {func(s *api.InstanceSpec) { s.Name = "Pod!" }, api.CodeUsage, "letter or digit"},
		"no profile":   {func(s *api.InstanceSpec) { s.Profile = "" }, api.CodeUsage, "profile"},
		"a long one":   {func(s *api.InstanceSpec) { s.Profile = strings.Repeat("g", 41) }, api.CodeUsage, "profile"},
		"no device":    {func(s *api.InstanceSpec) { s.Device = strings.Repeat("M", 101) }, api.CodeUsage, "UUID"},
		"before all":   {func(s *api.InstanceSpec) { *s.Start = -1 }, api.CodeUsage, "unit -1"},
		"behind all":   {func(s *api.InstanceSpec) { *s.Start = 64 }, api.CodeUsage, "unit 64"},
		"an odd label": {func(s *api.InstanceSpec) { s.Labels = share.Labels{"a b": ""} }, api.CodeUsage, "label"},
		"no GPU":       {func(s *api.InstanceSpec) { s.GPU = "GPU-none" }, api.CodeNotFound, "GPU-none"},
	} {
		wrong := spec
		wrong.Start = new(int)
		wrong.Name = "wrong"
		c.change(&wrong)
		_, _, err := r.client.EnsureInstance(t.Context(), wrong)
		if f := wantCode(t, err, c.code); !strings.Contains(f.Message, c.says) || len(fake.made) != 2 {
			t.Errorf("%s: %s", name, f.Message)
		}
	}
	_, err = r.client.Cordon(t.Context(), testUUID, "a new fan")
	must(t, err)
	_, _, err = r.client.EnsureInstance(t.Context(), api.InstanceSpec{Name: "late", GPU: testUUID, Profile: "1g.10gb"})
	if f := wantCode(t, err, api.CodeNotAllowed); !strings.Contains(f.Message, "a new fan") {
		t.Error(f.Message)
	}
	must(t, r.client.DeleteInstance(t.Context(), "pod"))
	wantCode(t, r.client.DeleteInstance(t.Context(), "pod"), api.CodeNotFound)
	wantCode(t, r.client.DeleteInstance(t.Context(), ".."), api.CodeNotFound)
	var verbs []string
	eventually(t, "the audit has all", func() bool {
		lines, err := r.client.Audit(t.Context(), 0, 100, "instance.")
		must(t, err)
		verbs = nil
		for _, l := range lines.Lines {
			if strings.HasPrefix(l.Verb, "instance.") && l.Object == "pod" {
				verbs = append(verbs, l.Verb+" "+l.Outcome)
			}
		}
		return len(verbs) == 3
	})
	if got := strings.Join(verbs, ", "); got != "instance.create done, instance.delete done, instance.delete failed" {
		t.Error(got)
	}
}

// A private agent makes none.
func TestNoInstances(t *testing.T) {
	r := newRig(t)
	_, err := r.client.Instances(t.Context())
	wantCode(t, err, api.CodeNotFound)
	_, _, err = r.client.EnsureInstance(t.Context(), api.InstanceSpec{Name: "pod", GPU: testUUID, Profile: "1g.10gb"})
	wantCode(t, err, api.CodeNotFound)
	wantCode(t, r.client.DeleteInstance(t.Context(), "pod"), api.CodeNotFound)
}
