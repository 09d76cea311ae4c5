// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// h100 is the address of a card of the machine mixed.
const h100 = "0000:1a:00.0"

// bookings is a machine with one card in MIG mode.
type bookings struct {
	*testing.T
	*machine.Machine
	driver *fakekernel.Driver
	path   string
	j      *machine.Journal
}

func newBookings(t *testing.T) *bookings {
	driver, open := &fakekernel.Driver{Address: h100, MIGNow: nvml.MIG{On: true, Pending: true}}, 0
	m, _ := host(t, "mixed", driver, &open)
	b := &bookings{T: t, Machine: m, driver: driver, path: filepath.Join(t.TempDir(), "deeper", "journal")}
	b.j = openJournal(t, b.path)
	t.Cleanup(func() {
		if err := b.j.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// again opens the journal as the next process does.
func (b *bookings) again() {
	b.Helper()
	if err := b.j.Close(); err != nil {
		b.Fatal(err)
	}
	b.j = openJournal(b.T, b.path)
}

func wanted(name, profile string, start int) machine.Booking {
	return machine.Booking{Name: name, Card: fakekernel.UUID, Profile: profile, Start: start, Labels: map[string]string{"claim": name}}
}

func (b *bookings) book(name, profile string, start int) machine.Booking {
	b.Helper()
	made, _, err := b.Book(b.Context(), b.j, wanted(name, profile, start))
	if err != nil || made.Profile != profile || made.Stage != machine.StageMade || len(made.Devices) != 1 {
		b.Fatalf("%s: %+v, %v", name, made, err)
	}
	return made
}

func (b *bookings) layout(want string) {
	b.Helper()
	c, err := b.Observe(b.Context(), h100)
	if err != nil {
		b.Fatal(err)
	}
	if got := c.Divided[partition.TechniqueMIG].Layout(c); got != want {
		b.Errorf("%s, want %s", got, want)
	}
}

func (b *bookings) refused(why error, want machine.Booking) {
	b.Helper()
	before := b.driver.Changes
	if _, _, err := b.Book(b.Context(), b.j, want); !errors.Is(err, why) || b.driver.Changes != before {
		b.Errorf("%+v: %v, %d changes", want, err, b.driver.Changes-before)
	}
}

func (b *bookings) release(name string, want error) {
	b.Helper()
	if err := b.Release(b.Context(), b.j, name); !errors.Is(err, want) {
		b.Errorf("release %s: %v, want %v", name, err, want)
	}
}

// TestBooking: instances are made and destroyed one by one, each beside what there is, and
// found again by their names.
func TestBooking(t *testing.T) {
	b := newBookings(t)
	if _, err := machine.OpenJournal(b.path); !errors.Is(err, machine.ErrBusy) {
		t.Errorf("beside another: %v", err)
	}
	b.driver.MIGNow.On = false
	b.refused(partition.ErrImpossible, wanted("off", "1g.10gb", mig.Anywhere))
	b.driver.MIGNow.On = true

	three := b.book("three", "3g.40gb", mig.Anywhere)
	b.book("one", "1g.10gb", mig.Anywhere)
	b.book("two", "2g.20gb", mig.Anywhere)
	const all = "MIG on 00:2g.20gb[2] 03:1g.10gb[1] 04:3g.40gb[3]"
	b.layout(all)
	for _, start := range []int{mig.Anywhere, 4} {
		b.again()
		if found, made, err := b.Book(t.Context(), b.j, wanted("three", "3g.40gb", start)); err != nil || made || !slices.Equal(found.Devices, three.Devices) {
			t.Errorf("again: %+v, made %v, %v", found, made, err)
		}
	}
	b.refused(machine.ErrOther, wanted("three", "3g.40gb", 0))
	b.refused(machine.ErrOther, wanted("one", "2g.20gb", mig.Anywhere))
	b.refused(mig.ErrNoRoom, wanted("more", "3g.40gb", mig.Anywhere))
	b.refused(mig.ErrNoRoom, wanted("more", "7g.80gb", mig.Anywhere))
	b.refused(mig.ErrNoRoom, wanted("more", "1g.10gb", 0))
	b.refused(partition.ErrImpossible, wanted("more", "7g.79gb", mig.Anywhere))
	b.refused(partition.ErrImpossible, wanted("more", "1g.10gb", 7))
	b.refused(gpu.ErrNoCard, machine.Booking{Name: "more", Card: "GPU-none", Profile: "1g.10gb"})

	// What is in use stays; what is gone is no error, and nothing else goes for it.
	at := b.driver.Find(2, 4)
	b.driver.MIGNow.Instances[at].Processes = []int{os.Getpid()}
	b.release("three", partition.ErrInUse)
	b.driver.MIGNow.Instances[at].Processes = nil
	b.layout(all)
	b.release("one", nil)
	b.release("one", machine.ErrNotBooked)
	b.layout("MIG on 00:2g.20gb[2] 04:3g.40gb[3]")

	// Another in its place stays, and so does what a reset has taken: it is made anew.
	b.driver.MIGNow.Instances[b.driver.Find(2, 4)].Devices = []string{"MIG-another"}
	b.release("three", nil)
	b.layout("MIG on 00:2g.20gb[2] 04:3g.40gb[3]")
	b.driver.MIGNow.Instances = nil
	b.book("two", "2g.20gb", 0)
	b.layout("MIG on 00:2g.20gb[2]")

	bare := fakekernel.Open(t, "mixed", vfio.New)
	if _, _, err := bare.Book(t.Context(), b.j, wanted("bare", "1g.10gb", mig.Anywhere)); !errors.Is(err, gpu.ErrNoCard) {
		t.Errorf("without a driver: %v", err)
	}
}

// TestApplyLeavesBooked: what is booked is in use to divvy partition apply, which takes it by
// force only.
func TestApplyLeavesBooked(t *testing.T) {
	b := newBookings(t)
	b.book("pod", "3g.40gb", mig.Anywhere)
	b.again()
	if _, err := b.Recover(t.Context(), b.j); err != nil {
		t.Fatal(err)
	}
	for rule, want := range map[string]string{
		"mig: {enabled: false}": "3g.40gb at 4 is booked by pod", "mig: {enabled: true, devices: {4g.40gb: 1, 1g.10gb: 2}}": "3g.40gb at 4 is booked by pod",
		"mig: {enabled: true, devices: {3g.40gb: 1, 1g.10gb: 2}}": "",
	} {
		goal, err := b.Techniques.ParseGoal([]byte("schema: " + partition.SchemaGoal + "\ncards: [{match: {address: [\"" + h100 + "\"]}, " + rule + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		state, err := b.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, force := range []bool{false, true} {
			c := partition.Planner{Techniques: b.Techniques, Force: force}.Plan(state, goal).Cards[0]
			if refused := c.Refused == partition.RefusedInUse && c.Reason == "in use: "+want; refused != (want != "" && !force) {
				t.Errorf("%s, force %v: %q %q", rule, force, c.Refused, c.Reason)
			}
		}
	}
}

// TestBookDevice: a MIG device that is there is booked as it is, by one, and stays when it is released.
func TestBookDevice(t *testing.T) {
	b := newBookings(t)
	must(t, b.driver.CreateInstance("", 2, 0)) // 3g.40gb at 0, of two compute instances
	must(t, b.driver.CreateCompute("", 2, 0, 1))
	must(t, b.driver.CreateCompute("", 2, 0, 2))
	made := b.book("pod", "1g.10gb", mig.Anywhere)
	c, err := b.Observe(t.Context(), h100)
	must(t, err)
	there := mig.Of(c).Instances[0]
	if len(there.Devices) != 2 {
		t.Fatalf("%+v", there)
	}
	want := func(name, device, profile string) machine.Booking {
		w := wanted(name, profile, mig.Anywhere)
		w.Device = device
		return w
	}
	for i, name := range []string{"one", "two"} {
		for _, isNew := range []bool{true, false} {
			got, is, err := b.Book(t.Context(), b.j, want(name, there.Devices[i], ""))
			if err != nil || is != isNew || got.Device != there.Devices[i] || got.Profile != "3g.40gb" || got.Start != 0 || got.Stage != machine.StageMade {
				t.Errorf("%s: %+v, new %v, %v", name, got, is, err)
			}
			b.again()
		}
	}
	for _, refused := range []struct {
		want machine.Booking
		why  error
	}{
		{want("other", there.Devices[0], ""), mig.ErrNoRoom}, {want("other", made.Devices[0], ""), mig.ErrNoRoom},
		{want("other", "MIG-none", ""), machine.ErrNoDevice}, {want("one", there.Devices[1], ""), machine.ErrOther},
	} {
		b.refused(refused.why, refused.want)
	}
	b.layout("MIG on 00:3g.40gb[1 2] 06:1g.10gb[1]")
	if c, err = b.Observe(t.Context(), h100); err != nil || mig.Of(c).Instances[0].Booked == "" {
		t.Errorf("%+v, %v", mig.Of(c).Instances, err)
	}
	b.release("one", nil)
	b.refused(partition.ErrImpossible, want("other", there.Devices[0], "1g.10gb"))
	b.release("two", nil)
	b.release("pod", nil)
	b.layout("MIG on 00:3g.40gb[1 2]")
	if left := b.j.Bookings(); len(left) > 0 {
		t.Errorf("%+v", left)
	}
}

// TestBookingDies: wherever the driver dies, the next booking finds the card as it was, and makes
// or destroys to its end what was begun.
func TestBookingDies(t *testing.T) {
	for left := 1; ; left++ {
		b := newBookings(t)
		b.book("one", "1g.10gb", mig.Anywhere)
		b.driver.Left = left
		_, _, err := b.Book(t.Context(), b.j, wanted("three", "3g.40gb", mig.Anywhere))
		if err == nil {
			if left < 3 {
				t.Errorf("an instance with its compute instance took %d changes", left-1)
			}
			return
		}
		if left%2 == 0 { // by the journal that is open as well as by what is on disk
			b.again()
		}
		b.driver.Dead, b.driver.Left = false, 0
		b.book("two", "2g.20gb", mig.Anywhere)
		if left%2 == 0 {
			b.again()
		}
		if len(b.j.Bookings()) != 2 {
			t.Errorf("after %d changes: %+v", left, b.j.Bookings())
		}
		b.layout("MIG on 04:2g.20gb[2] 06:1g.10gb[1]")
	}
}

// point is what a process that is killed leaves: of both journals so many bytes, and a card.
type point struct {
	what          string
	steps, booked int64
	instances     []nvml.Instance
}

// TestKilledBooking: wherever a process is killed that makes an instance or destroys one, at any
// record, at half of one and at any change of the card, the next one finds the booking with its
// instance, or neither; and the instances of others, one of which was made in the place that a
// booking was about to take.
func TestKilledBooking(t *testing.T) {
	for _, act := range []string{"book", "release"} {
		b := newBookings(t)
		b.book("kept", "1g.10gb", 0)
		must(t, b.driver.CreateInstance("", 0, 1))
		must(t, b.driver.CreateCompute("", 0, 1, 1))
		if act == "release" {
			b.book("pod", "3g.40gb", 4)
		}
		b.again()
		_, err := b.Recover(t.Context(), b.j)
		must(t, err)
		files := []string{b.path, b.path + ".bookings"}
		size := func(i int) int64 {
			s, err := os.Stat(files[i])
			must(t, err)
			return s.Size()
		}
		now := func(what string) point {
			return point{what: what, steps: size(0), booked: size(1), instances: slices.Clone(b.driver.MIGNow.Instances)}
		}
		began := now("nothing")
		points := []point{began}
		b.driver.Before = func() { points = append(points, now(fmt.Sprintf("change %d", b.driver.Changes))) }
		if act == "book" {
			b.book("pod", "3g.40gb", 4)
		} else {
			b.release("pod", nil)
		}
		b.driver.Before = nil
		ended := now("all")
		first := points[1] // of the changes, by when both records of the beginning are there
		points = append(points,
			point{what: "the first record", steps: began.steps, booked: first.booked, instances: began.instances},
			point{what: "half of the first record", steps: began.steps, booked: began.booked + 20, instances: began.instances},
			point{what: "half of the plan", steps: began.steps + 30, booked: first.booked, instances: began.instances},
			point{what: "all changes", steps: first.steps, booked: first.booked, instances: ended.instances},
			point{what: "the end of the plan", steps: ended.steps, booked: first.booked, instances: ended.instances},
			point{what: "half of the last record", steps: ended.steps, booked: ended.booked - 5, instances: ended.instances}, ended)
		const others = "another's instance"
		if act == "book" {
			points = append(points, point{what: others, steps: began.steps, booked: first.booked, instances: ended.instances})
		}
		var whole [2][]byte
		for i := range files {
			whole[i], err = os.ReadFile(files[i])
			must(t, err)
		}
		for _, p := range points {
			t.Run(act+" "+p.what, func(t *testing.T) {
				next := newBookings(t)
				must(t, next.j.Close())
				for i, n := range []int64{p.steps, p.booked} {
					must(t, os.WriteFile([]string{next.path, next.path + ".bookings"}[i], whole[i][:n], 0o600))
				}
				next.j = openJournal(t, next.path)
				next.driver.MIGNow.Instances = slices.Clone(p.instances)
				_, err := next.Recover(t.Context(), next.j)
				must(t, err)
				next.again()
				// To book it is made when its last record is; to release is begun by the first one.
				there := act == "book" && p.what == "all" || act == "release" && (p.what == "nothing" || p.what == "half of the first record")
				want, booked := "MIG on 00:1g.10gb[1] 01:1g.10gb[1]", 1
				if there {
					booked = 2
				}
				if there || p.what == others {
					want += " 04:3g.40gb[3]"
				}
				next.layout(want)
				if len(next.j.Bookings()) != booked {
					t.Errorf("%+v", next.j.Bookings())
				}
			})
		}
	}
}

// TestGivenUp: who gives up meanwhile leaves nothing.
func TestGivenUp(t *testing.T) {
	b := newBookings(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.driver.Before = cancel
	_, _, err := b.Book(ctx, b.j, wanted("pod", "3g.40gb", 4))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	b.driver.Before = nil
	b.layout("MIG on ")
	if left := b.j.Bookings(); len(left) > 0 {
		t.Errorf("%+v", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
