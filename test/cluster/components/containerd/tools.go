// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package containerd names the programs of containerd that the tests' cluster runs, so that
// their versions and sums are this module's.
package containerd

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
