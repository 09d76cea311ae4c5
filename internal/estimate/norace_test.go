// SPDX-License-Identifier: Apache-2.0

//go:build !race

package estimate_test

const raceEnabled = false
