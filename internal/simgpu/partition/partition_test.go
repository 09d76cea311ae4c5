// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/mig"
)

func products(t testing.TB) []*mig.Product {
	t.Helper()
	table, err := mig.Default()
	if err != nil {
		t.Fatal(err)
	}
	return table.Products()
}

func divide(t *testing.T, key string) *Cards {
	t.Helper()
	for _, p := range products(t) {
		if p.Key == key {
			c := New()
			c.Add(p, [16]byte{1}, 132)
			if err := c.SetMode(0, true, false); err != nil {
				t.Fatal(err)
			}
			return c
		}
	}
	t.Fatalf("no product %s", key)
	return nil
}

func profileID(t *testing.T, c *Cards, name string) int {
	t.Helper()
	p := c.Product(0)
	at := p.Index(name)
	if at < 0 {
		t.Fatalf("%s has no %s", p.Key, name)
	}
	return p.Profiles[at].ID
}

func TestMode(t *testing.T) {
	c := New()
	c.Add(nil, [16]byte{}, 40)
	if err := c.SetMode(0, true, false); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a GPU without MIG: %v", err)
	}
	c = divide(t, "a100-40gb")
	if _, err := c.CreateGPU(0, profileID(t, c, "1g.5gb"), Anywhere); err != nil {
		t.Fatal(err)
	}
	if err := c.SetMode(0, false, true); !errors.Is(err, ErrInUse) {
		t.Errorf("switch off in use: %v", err)
	}
	if current, pending := c.Mode(0); !current || pending || len(c.GPUs(0)) != 1 {
		t.Errorf("after that: %v, %v", current, pending)
	}
	c.Reset(0)
	if current, pending := c.Mode(0); current || pending || len(c.GPUs(0)) != 0 || c.Visible(0) {
		t.Errorf("after a reset: %v, %v, %v", current, pending, c.GPUs(0))
	}
	if _, err := c.CreateGPU(0, profileID(t, c, "1g.5gb"), Anywhere); !errors.Is(err, ErrUnsupported) {
		t.Errorf("an instance without MIG mode: %v", err)
	}
}

// The card chooses places so that large instances stay possible, whatever comes
// first.
func TestPlaces(t *testing.T) {
	c := divide(t, "h100-sxm-80gb")
	var starts, ids []int
	for _, name := range []string{"1g.10gb", "2g.20gb", "4g.40gb"} {
		g, err := c.CreateGPU(0, profileID(t, c, name), Anywhere)
		if err != nil {
			t.Fatal(err)
		}
		starts, ids = append(starts, g.Start), append(ids, g.ID)
	}
	if !slices.Equal(starts, []int{6, 4, 0}) || !slices.Equal(ids, []int{13, 5, 1}) {
		t.Errorf("starts %v, ids %v", starts, ids)
	}
	if _, err := c.CreateGPU(0, profileID(t, c, "1g.10gb"), Anywhere); !errors.Is(err, ErrResources) {
		t.Errorf("an eighth slice: %v", err)
	}
	if _, err := c.CreateGPU(0, profileID(t, c, "3g.40gb"), 2); !errors.Is(err, ErrInvalid) {
		t.Errorf("where none may start: %v", err)
	}
	if _, err := c.CreateGPU(0, 4711, Anywhere); !errors.Is(err, ErrInvalid) {
		t.Errorf("no such profile: %v", err)
	}
}

func TestComputeInstances(t *testing.T) {
	c := divide(t, "h100-sxm-80gb")
	g, err := c.CreateGPU(0, profileID(t, c, "3g.40gb"), 4)
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.CreateCompute(0, g.Number, 1, Anywhere)
	if err != nil {
		t.Fatal(err)
	}
	one, err := c.CreateCompute(0, g.Number, 0, Anywhere)
	if err != nil {
		t.Fatal(err)
	}
	if two.UUID == one.UUID || two.Unit == one.Unit || two.ID == one.ID || one.Start != 2 {
		t.Errorf("%+v beside %+v", two, one)
	}
	if name := c.DeviceName(0, g, two); name != "2c.3g.40gb" {
		t.Errorf("name %s", name)
	}
	if n := c.Multiprocessors(0, g.Profile, 1); n != 20 {
		t.Errorf("%d multiprocessors", n)
	}
	if _, err := c.CreateCompute(0, g.Number, 0, Anywhere); !errors.Is(err, ErrResources) {
		t.Errorf("a fourth slice of three: %v", err)
	}
	if _, err := c.CreateCompute(0, g.Number, 4, Anywhere); !errors.Is(err, ErrInvalid) {
		t.Errorf("seven slices of three: %v", err)
	}
	if err := c.DestroyGPU(0, g.Number); !errors.Is(err, ErrInUse) {
		t.Errorf("destroy with compute instances: %v", err)
	}
	for _, n := range []uint64{one.Number, two.Number} {
		if err := c.DestroyCompute(0, n); err != nil {
			t.Fatal(err)
		}
	}
	again, err := c.CreateCompute(0, g.Number, 1, Anywhere)
	if err != nil || again.UUID != two.UUID || again.Number == two.Number {
		t.Errorf("made again: %+v, %v; before %+v", again, err, two)
	}
	if err := c.DestroyCompute(0, two.Number); !errors.Is(err, ErrNotFound) {
		t.Errorf("destroy by an old number: %v", err)
	}
}

// On every product, whatever is created and destroyed in whatever order: nothing
// overlaps, sums stay within the card, numbers and ids are unique, and Remaining
// tells the truth.
func TestRandomWalks(t *testing.T) {
	for i, p := range products(t) {
		c := New()
		c.Add(p, [16]byte{byte(i)}, 100)
		if err := c.SetMode(0, true, false); err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(uint64(i), 7))
		seen := map[uint64]bool{}
		for range 2000 {
			walk(t, c, random, seen)
			checkCard(t, c)
			if t.Failed() {
				t.Fatalf("%s: %+v", p.Key, c.GPUs(0))
			}
		}
	}
}

func walk(t *testing.T, c *Cards, random *rand.Rand, seen map[uint64]bool) {
	p, gpus := c.Product(0), c.GPUs(0)
	switch pick := random.IntN(6); {
	case pick < 2:
		at := random.IntN(len(p.Profiles))
		left := c.Remaining(0, at)
		g, err := c.CreateGPU(0, p.Profiles[at].ID, Anywhere)
		if (err == nil) != (left > 0) || err != nil && !errors.Is(err, ErrResources) {
			t.Errorf("%d %s remain, and: %v", left, p.Profiles[at].Name, err)
		}
		if err == nil && seen[g.Number] {
			t.Errorf("number %d again", g.Number)
		}
		seen[g.Number] = err == nil
	case len(gpus) == 0:
	case pick == 2:
		g := gpus[random.IntN(len(gpus))]
		if err := c.DestroyGPU(0, g.Number); (err == nil) != (len(g.Computes) == 0) {
			t.Errorf("destroy %+v: %v", g, err)
		}
	case pick == 3:
		if g := gpus[random.IntN(len(gpus))]; len(g.Computes) > 0 {
			if err := c.DestroyCompute(0, g.Computes[random.IntN(len(g.Computes))].Number); err != nil {
				t.Error(err)
			}
		}
	default:
		g, profile := gpus[random.IntN(len(gpus))], random.IntN(ComputeProfiles+1)
		room := c.ComputeRoom(0, g, profile)
		if _, err := c.CreateCompute(0, g.Number, profile, Anywhere); (err == nil) != (len(room) > 0) {
			t.Errorf("compute profile %d with room %v: %v", profile, room, err)
		}
	}
}

func checkCard(t *testing.T, c *Cards) {
	t.Helper()
	p := c.Product(0)
	var used uint32
	compute, engines, like := 0, mig.Engines{}, map[int]int{}
	ids, units, uuids := map[int]bool{}, map[int]bool{}, map[[16]byte]bool{}
	for _, g := range c.GPUs(0) {
		f := p.Profiles[g.Profile]
		if used&mask(g.Start, f.Size) != 0 || ids[g.ID] || !slices.Contains(f.Starts, g.Start) {
			t.Errorf("instance %+v", g)
		}
		used |= mask(g.Start, f.Size)
		ids[g.ID] = true
		compute += f.Slices
		engines = engines.Plus(f.Engines)
		like[g.Profile]++
		if like[g.Profile] > f.Most {
			t.Errorf("%d of %s", like[g.Profile], f.Name)
		}
		var inside uint32
		for _, o := range g.Computes {
			if inside&mask(o.Start, o.Slices) != 0 || o.Start+o.Slices > f.Slices || units[o.Unit] || uuids[o.UUID] {
				t.Errorf("compute instance %+v", o)
			}
			inside |= mask(o.Start, o.Slices)
			units[o.Unit], uuids[o.UUID] = true, true
		}
	}
	if compute > p.Slices || !engines.Within(p.Engines) {
		t.Errorf("%d slices, %+v", compute, engines)
	}
}

// What the simulator has room for and what mig.Layout has, which plans and
// placements are made by, are the same, on every model of the table.
func TestLayoutsAgree(t *testing.T) {
	for _, p := range products(t) {
		c := New()
		c.Add(p, [16]byte{1}, 132)
		if err := c.SetMode(0, true, false); err != nil {
			t.Fatal(err)
		}
		layout := mig.Layout{Product: p}
		r := rand.New(rand.NewPCG(1, 2))
		full := 0
		for range 3000 {
			for i, f := range p.Profiles {
				opens := slices.DeleteFunc(slices.Clone(f.Starts), func(s int) bool { return !layout.Opens(i, s) })
				if room := c.cards[0].room(i); !slices.Equal(room, opens) || layout.Open(i) != (len(room) > 0) {
					t.Fatalf("%s with %+v: %s may start at %v, by its layout at %v (%v)", p.Key, c.GPUs(0), f.Name, room, opens, layout.Open(i))
				}
			}
			if have := c.GPUs(0); len(have) > 0 && r.IntN(3) == 0 {
				gone := have[r.IntN(len(have))]
				layout.Drop(gone.Profile, gone.Start)
				if err := c.DestroyGPU(0, gone.Number); err != nil {
					t.Fatal(err)
				}
				continue
			}
			i := r.IntN(len(p.Profiles))
			room, best := c.cards[0].room(i), layout.Best(i)
			if slices.Contains(room, best) != (len(room) > 0) {
				t.Fatalf("%s: %s may start at %v, best at %d", p.Key, p.Profiles[i].Name, room, best)
			}
			if best < 0 {
				full++
				continue
			}
			start := room[r.IntN(len(room))]
			layout.Add(i, start)
			if _, err := c.CreateGPU(0, p.Profiles[i].ID, start); err != nil {
				t.Fatalf("%s: %s at %d: %v", p.Key, p.Profiles[i].Name, start, err)
			}
		}
		for _, g := range c.GPUs(0) {
			layout.Drop(g.Profile, g.Start)
		}
		if layout != (mig.Layout{Product: p}) || full == 0 {
			t.Errorf("%s: %+v is left of an empty GPU; it was full %d times", p.Key, layout, full)
		}
	}
}
