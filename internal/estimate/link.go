// SPDX-License-Identifier: Apache-2.0

package estimate

import "fmt"

// path is how fast data goes round a group of cards.
type path struct {
	rate Range   // bytes per second and card, each way
	hops float64 // dependent steps of one collective
	how  string
	each float64 // GB/s, or adapters
	of   float64 // Gbit/s
}

func (p path) String() string {
	if p.of > 0 {
		return fmt.Sprintf("%s, %g x %g Gbit/s", p.how, p.each, p.of)
	}
	return fmt.Sprintf("%s, %g GB/s each way", p.how, p.each)
}

// hostHops are the dependent steps of a collective through the host: down and
// up to sum, down and up to tell.
const hostHops = 4

// pathOf describes the ring of n cards that stand stride apart.
func (e *Estimator) pathOf(s *Setup, n, stride int) path {
	c, within := s.Card, s.perMachine()
	part := e.K.bandwidth()
	span := n * stride
	linked := c.domain()
	if s.NoLink {
		linked = 1
	}
	if linked > within && linked < 72 {
		linked = within
	}
	switch {
	case span <= linked:
		each := c.Link.Each
		if c.Link.OnePeer > 0 { // a mesh: as many links as there are others
			each = min(each, c.Link.OnePeer*float64(n-1))
		}
		return path{rate: part.times(each * 1e9), hops: 1, how: c.Link.Kind, each: each}
	case span <= within:
		// Each transfer crosses the slot of two cards, and the host where cards
		// may not reach each other: half of the slot's rate.
		return path{rate: part.times(c.pcie() / 2), hops: hostHops, how: "PCIe through the host", each: c.pcie() / 2e9}
	}
	// Between machines all cards of a group use their adapters together.
	together := max(1, within/max(stride, 1))
	rate := c.network() * float64(min(together, n))
	inside := c.pcie() / 2
	if linked > 1 {
		inside = c.Link.Each * 1e9
	}
	return path{rate: part.times(min(rate, inside)), hops: 1 + float64((span-1)/within), how: "network", each: float64(min(together, n)), of: c.network() * 8 / 1e9}
}

// allReduce is the time to sum bytes over n cards by a ring.
func (e *Estimator) allReduce(s *Setup, n, stride int, bytes float64) (Range, path) {
	p := e.pathOf(s, n, stride)
	moved := 2 * float64(n-1) / float64(n) * bytes
	return exactly(moved).per(p.rate).plus(e.K[cLatency].Range.times(min(p.hops, 16))), p
}

// gather is the time to collect bytes that n cards hold a part of, or to sum
// them with each card keeping a part.
func (e *Estimator) gather(s *Setup, n, stride int, bytes float64) (Range, path) {
	p := e.pathOf(s, n, stride)
	moved := float64(n-1) / float64(n) * bytes
	return exactly(moved).per(p.rate).plus(e.K[cLatency].Range.times(min(p.hops, 16))), p
}
