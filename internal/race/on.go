// SPDX-License-Identifier: Apache-2.0

//go:build race

package race

// Enabled: see off.go.
const Enabled = true
