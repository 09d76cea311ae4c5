// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/gpu/nvml"
)

// driverLibrary asks NVIDIA's library about the cards of this machine. It is
// opened by the first question: a machine without such cards never loads it, and
// one without the library knows less.
type driverLibrary struct {
	source *nvml.Source
	tried  bool
}

func (l *driverLibrary) open() *nvml.Source {
	if !l.tried {
		l.tried = true
		if source, err := nvml.Open(""); err == nil {
			l.source = source
		}
	}
	return l.source
}

// Reading tells of the card at a PCI address.
func (l *driverLibrary) Reading(address string) (gpu.Reading, bool) {
	if source := l.open(); source != nil {
		return source.Reading(address)
	}
	return gpu.Reading{}, false
}

// Links tells of NVLink between cards.
func (l *driverLibrary) Links() []gpu.Link {
	if source := l.open(); source != nil {
		return source.Links()
	}
	return []gpu.Link{}
}

// Close lets go of the library.
func (l *driverLibrary) Close() error {
	if l.source == nil {
		return nil
	}
	return l.source.Close()
}
