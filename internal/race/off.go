// SPDX-License-Identifier: Apache-2.0

//go:build !race

// Package race says whether the race detector is on, which takes several times the time
// and the memory. Only tests import it.
package race

// Enabled says so.
const Enabled = false
