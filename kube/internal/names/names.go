// SPDX-License-Identifier: Apache-2.0

// Package names has the names under which Divvy is known in a cluster, and the rules by
// which names of shares and devices are made. It is pure.
package names

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Driver is the name of the DRA driver, and the prefix of all resources and annotations.
const Driver = "divvy.dev"

// Attributes and capacities of devices; unqualified, so of Driver's domain.
const (
	AttributeType         = "type"
	AttributeUUID         = "uuid"
	AttributeProduct      = "productName"
	AttributeSimulated    = "simulated"
	AttributeDriver       = "driverVersion"
	AttributeEnforcement  = "enforcement"
	AttributePCI          = "resource.kubernetes.io/pciBusID"
	CapacityMemory        = "memory"
	CapacityCores         = "cores"
	AttributeArchitecture = "architecture"
	AttributeNUMA         = "numaNode"
	AttributeIsland       = "island"
	AttributeWhole        = "whole" // nobody outside the cluster has something of it
	TypeShare             = "share"
	TaintHealth           = "divvy.dev/health"
	TaintRoom             = "divvy.dev/room"
	ParametersAPIVersion  = "divvy.dev/v1"
	ParametersKind        = "ShareParameters"
	StatusKind            = "ShareStatus"
	sharePrefix           = "k8s-"
	mostResults           = 32 // of one claim
	uidPattern            = `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	DeviceClassShare      = "share.divvy.dev"
	DeviceClassGPU        = "gpu.divvy.dev"
	CDIShare              = "divvy.dev/share="
	ConditionEnforced     = "Enforced"
	ReasonEnforcedByLevel = "Level"
)

// Labels on the agent's shares, by which a part finds those that are its own.
const (
	LabelBy        = "divvy.dev/by"
	LabelClaim     = "divvy.dev/claim" // UID
	LabelClaimName = "divvy.dev/claim-name"
	LabelNamespace = "divvy.dev/namespace"
	ByDRA          = "dra"
)

var (
	claimUID   = regexp.MustCompile(`^` + uidPattern + `$`)
	deviceName = regexp.MustCompile(`^gpu-[0-9a-f-]{36}$`)
)

// Share is the name of the nth share of a claim. Devices of the same name are never reused:
// a claim's UID is unique.
func Share(claim string, n int) (string, error) {
	if !claimUID.MatchString(claim) || n < 0 || n >= mostResults {
		return "", fmt.Errorf("no share can be named after number %d of claim %q", n, claim)
	}
	return sharePrefix + claim + "-" + strconv.Itoa(n), nil
}

// Device is the name of a GPU in a slice, from its UUID: the same after any restart and in
// any order.
func Device(uuid string) string { return strings.ToLower(uuid) }

// UUID is the UUID of the GPU that a device of a slice is.
func UUID(device string) (string, bool) {
	if !deviceName.MatchString(device) {
		return "", false
	}
	return "GPU" + strings.TrimPrefix(device, "gpu"), true
}
