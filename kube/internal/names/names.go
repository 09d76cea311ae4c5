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
	CDIShare              = "divvy.dev/share="
	ConditionEnforced     = "Enforced"
	ReasonEnforcedByLevel = "Level"
)

var (
	shareName  = regexp.MustCompile(`^` + sharePrefix + `(` + uidPattern + `)-(0|[1-9][0-9]?)$`)
	claimUID   = regexp.MustCompile(`^` + uidPattern + `$`)
	deviceName = regexp.MustCompile(`^gpu-[0-9a-f-]{36}$`)
)

// Share is the name of the share for the nth result of a claim, counting only our own.
// Devices of the same name are never reused: a claim's UID is unique.
func Share(claim string, n int) (string, error) {
	if !claimUID.MatchString(claim) || n < 0 || n >= mostResults {
		return "", fmt.Errorf("no share can be named after result %d of claim %q", n, claim)
	}
	return sharePrefix + claim + "-" + strconv.Itoa(n), nil
}

// Claim says which claim and result a share was made for; ok is false for shares that
// were not made for a claim.
func Claim(share string) (claim string, n int, ok bool) {
	found := shareName.FindStringSubmatch(share)
	if found == nil {
		return "", 0, false
	}
	n, err := strconv.Atoi(found[2])
	return found[1], n, err == nil && n < mostResults
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
