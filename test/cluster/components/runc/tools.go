// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package runc names the program that starts the containers of the tests' cluster, so that
// its version and sums are this module's.
package runc

import _ "github.com/opencontainers/runc"
