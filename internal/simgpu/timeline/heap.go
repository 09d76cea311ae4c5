// SPDX-License-Identifier: Apache-2.0

package timeline

// heap is a binary heap of items, the first one first: by number, or by the time
// they get ready and then by number.
type heap struct {
	items   []*item
	byReady bool
}

func (h *heap) less(a, b *item) bool {
	if h.byReady && a.ready != b.ready {
		return a.ready < b.ready
	}
	return a.seq < b.seq
}

func (h *heap) push(it *item) {
	h.items = append(h.items, it)
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(h.items[i], h.items[up]) {
			return
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

func (h *heap) pop() *item {
	first := h.items[0]
	n := len(h.items) - 1
	h.items[0], h.items[n] = h.items[n], nil
	h.items = h.items[:n]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < n && h.less(h.items[down], h.items[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
