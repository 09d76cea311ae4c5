// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
)

// libraryAnswersFor is how long the driver's library may take to answer one question.
const libraryAnswersFor = 3 * time.Second

// driverLibrary asks NVIDIA's library about the cards of this machine. It is
// opened by the first question: a machine without such cards never loads it, and
// one without the library, or whose library hangs, knows less.
type driverLibrary struct {
	source *nvml.Source
	tried  bool
	silent bool // it has not answered, and is not asked again
}

// ask calls f with the library, if there is one that answers.
func ask[T any](l *driverLibrary, f func(*nvml.Source) T) (answer T, ok bool) {
	if l.silent {
		return answer, false
	}
	type reply struct {
		source *nvml.Source
		answer T
	}
	source, open := l.source, !l.tried
	l.tried = true
	answered := make(chan reply, 1)
	go func() { // ends when the library answers
		r := reply{source: source}
		if open {
			if opened, err := nvml.Open(""); err == nil {
				r.source = opened
			}
		}
		if r.source != nil {
			r.answer = f(r.source)
		}
		answered <- r
	}()
	patience := time.NewTimer(libraryAnswersFor)
	defer patience.Stop()
	select {
	case r := <-answered:
		l.source = r.source
		return r.answer, r.source != nil
	case <-patience.C:
		l.silent = true
		return answer, false
	}
}

// Reading tells of the card at a PCI address.
func (l *driverLibrary) Reading(address string) (gpu.Reading, bool) {
	type reading struct {
		gpu.Reading
		known bool
	}
	r, ok := ask(l, func(source *nvml.Source) (r reading) {
		r.Reading, r.known = source.Reading(address)
		return r
	})
	return r.Reading, ok && r.known
}

// Links tells of NVLink between cards.
func (l *driverLibrary) Links() []gpu.Link {
	if links, ok := ask(l, (*nvml.Source).Links); ok {
		return links
	}
	return []gpu.Link{}
}

// Close lets go of the library.
func (l *driverLibrary) Close() error {
	if l.source == nil || l.silent {
		return nil
	}
	return l.source.Close()
}
