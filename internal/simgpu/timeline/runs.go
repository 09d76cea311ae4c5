// SPDX-License-Identifier: Apache-2.0

package timeline

import "sort"

// maxRuns bounds what is remembered of one card: a second of kernels of 50 us
// that are launched one by one, and more.
const maxRuns = 1 << 15

// Run is a time for which a process had a card without a break.
type Run struct {
	Process      ProcessID
	FromNS, ToNS int64
}

// runs remembers who had a card when: in order, apart.
type runs struct {
	list  []Run
	since int64 // all from then on are there
}

// add takes what was decided, or with sign -1 the end of it back.
func (r *runs) add(id ProcessID, from, to, sign int64) {
	n := len(r.list)
	switch {
	case sign < 0:
		for n > 0 && r.list[n-1].ToNS > from {
			r.list[n-1].ToNS = from
			if r.list[n-1].FromNS < from {
				break
			}
			n--
		}
		r.list = r.list[:n]
	case n > 0 && r.list[n-1].Process == id && r.list[n-1].ToNS == from:
		r.list[n-1].ToNS = to
	default:
		r.list = append(r.list, Run{id, from, to})
		if half := maxRuns / 2; n == maxRuns {
			r.since = r.list[half].ToNS
			r.list = append(r.list[:0], r.list[half+1:]...)
		}
	}
}

// Runs lists who had a card when, from a moment to the last Advance, and says
// since when that is known: at first it is not, for remembering begins with the
// first question.
func (t *Timeline) Runs(index int, from int64) (list []Run, sinceNS int64) {
	c := &t.cards[index]
	if c.runs == nil {
		c.runs = &runs{since: max(t.advanced, c.at)}
	}
	all := c.runs.list
	first := sort.Search(len(all), func(i int) bool { return all[i].ToNS > from })
	for _, r := range all[first:] {
		r.FromNS, r.ToNS = max(r.FromNS, from), min(r.ToNS, t.advanced)
		if r.FromNS < r.ToNS {
			list = append(list, r)
		}
	}
	return list, c.runs.since
}
