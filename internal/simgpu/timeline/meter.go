// SPDX-License-Identifier: Apache-2.0

package timeline

// WindowNS is what utilisation looks back over. Hardware samples over a sixth of
// a second to a second.
const WindowNS = windowBuckets * bucketNS

const (
	bucketNS      = int64(20_000_000)
	windowBuckets = 25
	buckets       = 32 // the window, the one that runs, and what is decided ahead
)

// meter remembers how busy the last buckets of time were.
type meter struct {
	slots [buckets]struct{ number, busy int64 }
}

func (m *meter) add(from, to, sign int64) {
	for from < to {
		number := from / bucketNS
		end := min(to, (number+1)*bucketNS)
		slot := &m.slots[number%buckets]
		if slot.number != number {
			slot.number, slot.busy = number, 0
		}
		slot.busy += sign * (end - from)
		from = end
	}
}

// percent is of the whole buckets before the one that now falls into.
func (m *meter) percent(now int64) int {
	last := now / bucketNS
	var sum int64
	for _, slot := range m.slots {
		if slot.number < last && slot.number >= last-windowBuckets {
			sum += slot.busy
		}
	}
	return int((sum*100 + WindowNS/2) / WindowNS)
}
