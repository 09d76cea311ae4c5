// SPDX-License-Identifier: Apache-2.0

// Package partition is MIG of simulated cards: which of them are divided, into
// which GPU instances and compute instances, by the table of package mig. It is
// pure, and knows nothing of processes: whether an instance is in use is for the
// caller to find out before it changes anything.
//
// Each compute instance is a device of its own to CUDA. It has a unit, a small
// number that belongs to it while it lives and to another one later.
package partition

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/divvy-gpu/divvy/internal/mig"
)

var (
	// ErrUnsupported says that the card has no MIG, or not now.
	ErrUnsupported = errors.New("the GPU is not in MIG mode")
	// ErrInvalid says that there is no such profile or placement.
	ErrInvalid = errors.New("no such profile or placement")
	// ErrNotFound says that there is no such instance.
	ErrNotFound = errors.New("no such instance")
	// ErrResources says that the instance does not fit.
	ErrResources = errors.New("not enough of the GPU is free")
	// ErrInUse says that something lives in what is to go.
	ErrInUse = errors.New("in use")
)

// Units is how many compute instances a card can have at once, at most.
const Units = 8

// Anywhere is the start of an instance whose place the card chooses.
const Anywhere = -1

// ComputeProfiles is how many kinds of compute instances there are.
const ComputeProfiles = 8

// Compute is a compute instance.
type Compute struct {
	Number  uint64 // never used again
	ID      int    // within its GPU instance
	Profile int    // as NVML numbers them: see ComputeSlices
	Start   int    // in slices of the GPU instance
	Slices  int
	Unit    int
	UUID    [16]byte
}

// GPU is a GPU instance.
type GPU struct {
	Number   uint64
	ID       int
	Profile  int // index in the product's profiles
	Start    int
	Computes []Compute // by id
}

type card struct {
	product *mig.Product
	uuid    [16]byte
	sms     int // of the whole card
	current bool
	pending bool
	gpus    []GPU // by id
}

// Cards is MIG of all cards of a machine. One goroutine owns it.
type Cards struct {
	cards  []card
	number uint64
}

// New returns cards that are not divided.
func New() *Cards { return &Cards{} }

// Add adds a card with its multiprocessors; product is nil if it has no MIG.
func (c *Cards) Add(product *mig.Product, uuid [16]byte, multiprocessors int) {
	c.cards = append(c.cards, card{product: product, uuid: uuid, sms: multiprocessors})
}

// Product is the model of a card; nil: it has no MIG.
func (c *Cards) Product(index int) *mig.Product { return c.cards[index].product }

// Mode says whether a card is divided, and whether it will be after its next reset.
func (c *Cards) Mode(index int) (current, pending bool) {
	return c.cards[index].current, c.cards[index].pending
}

// SetMode switches MIG on or off: at once, or, while the card is in use, with its
// next reset. Switching it off destroys all instances.
func (c *Cards) SetMode(index int, on, inUse bool) error {
	if c.cards[index].product == nil {
		return fmt.Errorf("GPU %d: %w", index, ErrUnsupported)
	}
	c.cards[index].pending = on
	if inUse && c.cards[index].current != on {
		return fmt.Errorf("switch MIG mode of GPU %d: %w", index, ErrInUse)
	}
	c.Reset(index)
	return nil
}

// Reset makes the mode what was asked for last.
func (c *Cards) Reset(index int) {
	k := &c.cards[index]
	if k.current != k.pending {
		k.current, k.gpus = k.pending, nil
	}
}

// GPUs lists the GPU instances of a card, by id.
func (c *Cards) GPUs(index int) []GPU { return c.cards[index].gpus }

// Visible says whether the card's driver tells of profiles now: the first
// generation does so only while it is divided.
func (c *Cards) Visible(index int) bool {
	k := &c.cards[index]
	return k.product != nil && (k.current || !k.product.NeedsReset)
}

func (c *Cards) divided(index int) (*card, error) {
	if k := &c.cards[index]; k.current {
		return k, nil
	}
	return nil, fmt.Errorf("GPU %d: %w", index, ErrUnsupported)
}

// occupied has a bit for each placement unit in use.
func (k *card) occupied() uint32 {
	var used uint32
	for _, g := range k.gpus {
		used |= mask(g.Start, k.product.Profiles[g.Profile].Size)
	}
	return used
}

func mask(start, size int) uint32 { return (1<<size - 1) << start }

// room lists where an instance of a profile could start beside what there is.
func (k *card) room(profile int) []int {
	f := k.product.Profiles[profile]
	compute, like, engines := f.Slices, 1, f.Engines
	for _, g := range k.gpus {
		o := k.product.Profiles[g.Profile]
		compute += o.Slices
		engines = engines.Plus(o.Engines)
		if g.Profile == profile {
			like++
		}
	}
	if compute > k.product.Slices || like > f.Most || !engines.Within(k.product.Engines) {
		return nil
	}
	used := k.occupied()
	var starts []int
	for _, s := range f.Starts {
		if used&mask(s, f.Size) == 0 {
			starts = append(starts, s)
		}
	}
	return starts
}

// Remaining is how many more instances of a profile fit.
func (c *Cards) Remaining(index, profile int) int {
	trial := c.cards[index]
	trial.gpus = slices.Clone(trial.gpus)
	for count := 0; ; count++ {
		starts := trial.room(profile)
		if len(starts) == 0 {
			return count
		}
		trial.gpus = append(trial.gpus, GPU{Profile: profile, Start: starts[0]})
	}
}

// choose picks the start that leaves the most places to others; of equal ones the
// last, so that small instances gather at the end.
func (k *card) choose(profile int, starts []int) int {
	best, most := starts[0], -1
	for _, s := range starts {
		trial := *k
		trial.gpus = append(slices.Clone(k.gpus), GPU{Profile: profile, Start: s})
		left := 0
		for i, f := range k.product.Profiles {
			left += len(trial.room(i)) * f.Size
		}
		if left >= most {
			best, most = s, left
		}
	}
	return best
}

// CreateGPU makes a GPU instance of a profile, by the profile's id.
func (c *Cards) CreateGPU(index, profileID, start int) (GPU, error) {
	k, err := c.divided(index)
	if err != nil {
		return GPU{}, err
	}
	profile := slices.IndexFunc(k.product.Profiles, func(f mig.Profile) bool { return f.ID == profileID })
	if profile < 0 {
		return GPU{}, fmt.Errorf("profile %d: %w", profileID, ErrInvalid)
	}
	f := k.product.Profiles[profile]
	if start != Anywhere && !slices.Contains(f.Starts, start) {
		return GPU{}, fmt.Errorf("profile %s at %d: %w", f.Name, start, ErrInvalid)
	}
	starts := k.room(profile)
	if len(starts) == 0 || start != Anywhere && !slices.Contains(starts, start) {
		return GPU{}, fmt.Errorf("profile %s at %d: %w", f.Name, start, ErrResources)
	}
	if start == Anywhere {
		start = k.choose(profile, starts)
	}
	c.number++
	g := GPU{Number: c.number, ID: k.gpuID(start, f.Size), Profile: profile, Start: start}
	k.gpus = append(k.gpus, g)
	slices.SortFunc(k.gpus, func(a, b GPU) int { return a.ID - b.ID })
	return g, nil
}

// gpuID numbers GPU instances by size and place: the one that fills the card is
// 0, then come halves, quarters and so on, as drivers have it. Ids of instances
// that can live side by side differ.
func (k *card) gpuID(start, size int) int {
	id, width := 0, k.product.Units
	for width > size && width > 1 {
		id += k.product.Units / width
		width /= 2
	}
	return id + start/max(width, 1)
}

// find looks a GPU instance up by its number.
func (c *Cards) find(index int, number uint64) (*card, int, error) {
	k, err := c.divided(index)
	if err != nil {
		return nil, 0, err
	}
	at := slices.IndexFunc(k.gpus, func(g GPU) bool { return g.Number == number })
	if at < 0 {
		return nil, 0, fmt.Errorf("GPU instance number %d of GPU %d: %w", number, index, ErrNotFound)
	}
	return k, at, nil
}

// DestroyGPU destroys a GPU instance without compute instances.
func (c *Cards) DestroyGPU(index int, number uint64) error {
	k, at, err := c.find(index, number)
	if err != nil {
		return err
	}
	if n := len(k.gpus[at].Computes); n > 0 {
		return fmt.Errorf("GPU instance %d has %d compute instances: %w", k.gpus[at].ID, n, ErrInUse)
	}
	k.gpus = slices.Delete(slices.Clone(k.gpus), at, at+1)
	return nil
}

// ComputeSlices is how many slices a compute instance of a profile has; 0: there
// is no such profile.
func ComputeSlices(profile int) int {
	known := [ComputeProfiles]int{1, 2, 3, 4, 7, 8, 6, 0}
	if profile < 0 || profile >= len(known) {
		return 0
	}
	return known[profile]
}

// ComputeStarts lists where compute instances of a profile may start in a GPU
// instance with so many slices; none: it cannot have such.
func ComputeStarts(gpuSlices, profile int) []int {
	size := ComputeSlices(profile)
	if size == 0 || size > gpuSlices {
		return nil
	}
	step := size
	if size == 3 {
		step = 4 // beside a 4
	}
	var starts []int
	for s := 0; s+size <= gpuSlices; s += step {
		starts = append(starts, s)
	}
	return starts
}

// ComputeRoom lists which of those starts are free.
func (c *Cards) ComputeRoom(index int, g GPU, profile int) []int {
	var used uint32
	for _, o := range g.Computes {
		used |= mask(o.Start, o.Slices)
	}
	var free []int
	for _, s := range ComputeStarts(c.cards[index].product.Profiles[g.Profile].Slices, profile) {
		if used&mask(s, ComputeSlices(profile)) == 0 {
			free = append(free, s)
		}
	}
	return free
}

// CreateCompute makes a compute instance in a GPU instance.
func (c *Cards) CreateCompute(index int, number uint64, profile, start int) (Compute, error) {
	k, at, err := c.find(index, number)
	if err != nil {
		return Compute{}, err
	}
	g := &k.gpus[at]
	starts := ComputeStarts(k.product.Profiles[g.Profile].Slices, profile)
	if len(starts) == 0 || start != Anywhere && !slices.Contains(starts, start) {
		return Compute{}, fmt.Errorf("compute profile %d at %d of GPU instance %d: %w", profile, start, g.ID, ErrInvalid)
	}
	free := c.ComputeRoom(index, *g, profile)
	unit := k.freeUnit()
	if len(free) == 0 || unit < 0 || start != Anywhere && !slices.Contains(free, start) {
		return Compute{}, fmt.Errorf("compute profile %d at %d of GPU instance %d: %w", profile, start, g.ID, ErrResources)
	}
	if start == Anywhere {
		start = free[0]
	}
	c.number++
	made := Compute{Number: c.number, Profile: profile, Start: start, Slices: ComputeSlices(profile), Unit: unit}
	for slices.ContainsFunc(g.Computes, func(o Compute) bool { return o.ID == made.ID }) {
		made.ID++
	}
	made.UUID = k.deviceUUID(*g, made)
	g.Computes = append(slices.Clone(g.Computes), made)
	slices.SortFunc(g.Computes, func(a, b Compute) int { return a.ID - b.ID })
	return made, nil
}

func (k *card) freeUnit() int {
	var used [Units]bool
	for _, g := range k.gpus {
		for _, o := range g.Computes {
			used[o.Unit] = true
		}
	}
	return slices.Index(used[:], false)
}

// deviceUUID follows from what the device is and where, as with drivers: the same
// division has the same UUIDs after a restart.
func (k *card) deviceUUID(g GPU, made Compute) [16]byte {
	var uuid [16]byte
	text := binary.BigEndian.AppendUint64(k.uuid[:], uint64(g.ID)<<32|uint64(made.ID))
	sum := sha256.Sum256(fmt.Appendf(text, "divvy simulated MIG device %d %d %d %d", g.Profile, g.Start, made.Profile, made.Start))
	copy(uuid[:], sum[:])
	uuid[6] = uuid[6]&0x0f | 0x50 // made from a name
	uuid[8] = uuid[8]&0x3f | 0x80
	return uuid
}

// DestroyCompute destroys a compute instance, by its number.
func (c *Cards) DestroyCompute(index int, number uint64) error {
	k, err := c.divided(index)
	if err != nil {
		return err
	}
	for i := range k.gpus {
		g := &k.gpus[i]
		if at := slices.IndexFunc(g.Computes, func(o Compute) bool { return o.Number == number }); at >= 0 {
			g.Computes = slices.Delete(slices.Clone(g.Computes), at, at+1)
			return nil
		}
	}
	return fmt.Errorf("compute instance number %d of GPU %d: %w", number, index, ErrNotFound)
}

// Multiprocessors is how many a compute instance of so many slices has of a GPU
// instance: what the instance has for a whole one, else its part.
func (c *Cards) Multiprocessors(index, profile, computeSlices int) int {
	k := &c.cards[index]
	f := k.product.Profiles[profile]
	whole := f.Multiprocessors
	if whole == 0 {
		whole = k.sms * f.Slices / k.product.Slices
	}
	return whole * computeSlices / f.Slices
}

// DeviceName is what nvidia-smi calls the device, without the card: 1g.10gb, or
// 1c.3g.40gb for a part of the slices.
func (c *Cards) DeviceName(index int, g GPU, made Compute) string {
	f := c.cards[index].product.Profiles[g.Profile]
	if made.Slices == f.Slices {
		return f.Name
	}
	return fmt.Sprintf("%dc.%s", made.Slices, f.Name)
}
