// SPDX-License-Identifier: Apache-2.0

// Package lateness is about how late a host wakes threads: profiles of slow hosts,
// which tests and benches play, and records of what was measured. It is pure.
package lateness

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"
)

// Profile is a host that wakes threads late.
type Profile struct {
	Usual  time.Duration // half of all sleepers wake later than that,
	Rare   time.Duration // one in a thousand later than that,
	Most   time.Duration // and none
	Launch time.Duration // what a launch takes its thread, besides
}

// Slow is what a virtual machine of two processors was seen to do, with nothing
// else running.
var Slow = Profile{Usual: 100 * time.Microsecond, Rare: 2 * time.Millisecond, Most: 5 * time.Millisecond, Launch: 60 * time.Microsecond}

// environment is the variable by which programs on simulated cards are told of a
// profile (clib/slowhost, clib/standin/work/slow.c).
const environment = "DIVVY_SLOW_HOST"

// Environ is the setting of an environment that tells a program of a profile.
func (p Profile) Environ() string {
	return fmt.Sprintf("%s=%d:%d:%d:%d", environment, p.Usual, p.Rare, p.Most, p.Launch)
}

// Bounds of a profile.
const (
	mostLate   = 100 * time.Millisecond
	mostLaunch = 10 * time.Millisecond
)

const form = "slow, or usual=TIME,rare=TIME,most=TIME,launch=TIME"

// Parse reads "slow", or what String writes; what is left out is 0, or as the one
// before it.
func Parse(text string) (Profile, error) {
	if text == "slow" {
		return Slow, nil
	}
	var p Profile
	places := map[string]*time.Duration{"usual": &p.Usual, "rare": &p.Rare, "most": &p.Most, "launch": &p.Launch}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		place := places[name]
		if place == nil {
			return p, fmt.Errorf("host %q: %q is none of %s", text, name, form)
		}
		delete(places, name)
		d, err := time.ParseDuration(value)
		if err != nil {
			return p, fmt.Errorf("host %q: %s: %q is no time, such as 100us or 2ms", text, name, value)
		}
		*place = d
	}
	if places["rare"] != nil {
		p.Rare = p.Usual
	}
	if places["most"] != nil {
		p.Most = p.Rare
	}
	if err := p.Validate(); err != nil {
		return p, fmt.Errorf("host %q: %w", text, err)
	}
	return p, nil
}

// Validate says what is wrong with a profile.
func (p Profile) Validate() error {
	switch {
	case p.Usual < 0 || p.Launch < 0:
		return errors.New("a time below 0")
	case p.Usual > p.Rare || p.Rare > p.Most:
		return fmt.Errorf("usual %v, rare %v and most %v do not follow each other", p.Usual, p.Rare, p.Most)
	case p.Most > mostLate:
		return fmt.Errorf("most %v is more than %v", p.Most, mostLate)
	case p.Launch > mostLaunch:
		return fmt.Errorf("launch %v is more than %v", p.Launch, mostLaunch)
	}
	return nil
}

func (p Profile) String() string {
	return fmt.Sprintf("usual=%v,rare=%v,most=%v,launch=%v", p.Usual, p.Rare, p.Most, p.Launch)
}

// The parts of all sleepers that are later than Usual, and than Rare.
const (
	usual = 0.5
	rare  = 0.001
)

// Late is how late a sleeper wakes of whom this part of all, from 0 to 1, wakes later.
// Between Usual and Rare each halving of the part makes it later by the same factor.
func (p Profile) Late(part float64) time.Duration {
	switch {
	case part >= usual:
		return time.Duration(float64(p.Usual) * (1 - part) / (1 - usual))
	case part >= rare && p.Usual > 0:
		return time.Duration(float64(p.Usual) * math.Pow(float64(p.Rare)/float64(p.Usual), math.Log(usual/part)/math.Log(usual/rare)))
	case part >= rare:
		return time.Duration(float64(p.Rare) * (usual - part) / (usual - rare))
	}
	return p.Rare + time.Duration(float64(p.Most-p.Rare)*(1-part/rare))
}

// Record is how late wake-ups were; it knows them to an eighth.
type Record struct {
	counts [64 * eighths]uint64
	count  uint64
	most   time.Duration
}

const eighths = 8

// bucket counts a time; below and including a microsecond it is the first.
func bucket(d time.Duration) int {
	ns := uint64(max(d, 0)) >> 7 // 128 ns: what nobody needs to know
	if ns < eighths {
		return int(ns)
	}
	power := bits.Len64(ns) - 4
	return power*eighths + int(ns>>power)
}

// top is the largest time of a bucket.
func top(bucket int) time.Duration {
	if bucket < eighths {
		return time.Duration(bucket+1)<<7 - 1
	}
	power := bucket/eighths - 1
	return time.Duration(bucket%eighths+eighths+1)<<(power+7) - 1
}

// Note adds a wake-up.
func (r *Record) Note(late time.Duration) {
	r.counts[bucket(late)]++
	r.count++
	r.most = max(r.most, late)
}

// Count is how many there were.
func (r *Record) Count() uint64 { return r.count }

// Most is the latest.
func (r *Record) Most() time.Duration { return r.most }

// Quantile is how late this part of them was at most: 0.5 is the median. 0: there
// were none.
func (r *Record) Quantile(part float64) time.Duration {
	left := uint64(math.Ceil(part * float64(r.count)))
	for i, n := range r.counts {
		if n >= left && r.count > 0 {
			return min(top(i), r.most)
		}
		left -= n
	}
	return r.most
}
