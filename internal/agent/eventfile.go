// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/journal"
)

// eventFile keeps events for the next agent, which goes on with their numbers: an event is
// in it before anybody is told.
type eventFile struct {
	journal *journal.Journal
	lost    time.Time // when it could not be written; zero: it has everything
}

// maxEventBytes bounds the file: then it begins anew with what the log still has.
const maxEventBytes = 8 << 20

// readEvents opens the file at path, and puts what it has into the log. A record that cannot
// be read is left out: it has a valid checksum, so a newer agent wrote it.
func readEvents(path string, log *eventLog) (*eventFile, error) {
	j, records, _, err := journal.Open(path)
	if err != nil {
		return nil, err
	}
	// Of more than the log remembers the last are asked for.
	for _, raw := range records[max(0, len(records)-len(log.ring)):] {
		var e api.Event
		if json.Unmarshal(raw, &e) == nil && e.Sequence > log.last {
			log.add(e)
		}
	}
	return &eventFile{journal: j}, nil
}

// add keeps events that the log is about to tell. Once that failed it writes all that the
// log has, when some time has passed: events go on meanwhile.
func (f *eventFile) add(now time.Time, events []api.Event, log *eventLog) error {
	if f == nil {
		return nil
	}
	again := !f.lost.IsZero()
	if again && now.Sub(f.lost) < saveAgain {
		return nil
	}
	write := f.journal.Append
	if again || f.journal.Size() > maxEventBytes {
		write = func(records ...[]byte) error { return f.journal.Replace(records) }
		before, _, _ := log.after(0, len(log.ring)+1)
		if len(before) > 0 && before[0].Sequence < log.last-uint64(log.count)+1 {
			before = before[1:] // the notice of those that are forgotten
		}
		events = append(before, events...)
	}
	records := make([][]byte, 0, len(events))
	for _, e := range events {
		raw, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("keep event %d: %w", e.Sequence, err)
		}
		records = append(records, raw)
	}
	if err := write(records...); err != nil {
		f.lost = now
		if again {
			return nil // it was told when it began
		}
		return fmt.Errorf("keep events: %w", err)
	}
	f.lost = time.Time{}
	return nil
}
