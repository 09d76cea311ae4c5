// SPDX-License-Identifier: Apache-2.0

//go:build race

package agent

// raceDetector takes several times the memory.
const raceDetector = true
