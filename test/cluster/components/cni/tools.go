// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package cni names the network plugins of the tests' cluster, so that their versions and
// sums are this module's.
package cni

import (
	_ "github.com/containernetworking/plugins/plugins/ipam/host-local"
	_ "github.com/containernetworking/plugins/plugins/main/bridge"
	_ "github.com/containernetworking/plugins/plugins/main/loopback"
)
