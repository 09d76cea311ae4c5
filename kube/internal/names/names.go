// SPDX-License-Identifier: Apache-2.0

// Package names has the names under which Divvy is known in a cluster, and the rules by
// which names of shares and devices are made. It is pure.
package names

import (
	"fmt"
	"regexp"
	"slices"
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
	AttributePCIeRoot     = "resource.kubernetes.io/pcieRoot"
	CapacityMemory        = "memory"
	CapacityCores         = "cores"
	AttributeArchitecture = "architecture"
	AttributeNUMA         = "numaNode"
	AttributeIsland       = "island"
	AttributeWhole        = "whole"   // nobody outside the cluster has something of it
	AttributeProfile      = "profile" // of a MIG device
	AttributeGPU          = "gpu"     // the UUID of the GPU that a MIG device is of
	TypeShare             = "share"
	TypeMIG               = "mig"
	TaintHealth           = "divvy.dev/health"
	TaintRoom             = "divvy.dev/room"
	ParametersAPIVersion  = "divvy.dev/v1"
	ParametersKind        = "ShareParameters"
	StatusKind            = "ShareStatus"
	StatusKindMIG         = "MIGStatus"
	sharePrefix           = "k8s-"
	mostResults           = 32 // of one claim
	maxDeviceName         = 63
	uidPattern            = `[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	DeviceClassShare      = "share.divvy.dev"
	DeviceClassGPU        = "gpu.divvy.dev"
	DeviceClassMIG        = "mig.divvy.dev"
	CDIShare              = "divvy.dev/share="
	CDIInstance           = "divvy.dev/instance="
	ConditionEnforced     = "Enforced"
	ReasonEnforcedByLevel = "Level"
)

// Labels on the agent's shares, by which a part finds those that are its own.
const (
	LabelBy        = "divvy.dev/by"
	LabelClaim     = "divvy.dev/claim" // UID
	LabelClaimName = "divvy.dev/claim-name"
	LabelNamespace = "divvy.dev/namespace"
	LabelPod       = "divvy.dev/pod" // UID
	LabelPodName   = "divvy.dev/pod-name"
	LabelContainer = "divvy.dev/container"
	ByDRA          = "dra"
	ByPlugin       = "device-plugin"
)

// Labels of nodes.
const (
	LabelNodeFit         = "divvy.dev/fit"
	LabelNodeGPUs        = "divvy.dev/gpu.count"
	LabelNodeProduct     = "divvy.dev/gpu.product"
	LabelNodeMemory      = "divvy.dev/gpu.memory" // MiB
	LabelNodeEnforcement = "divvy.dev/enforcement"
	LabelNodeSimulated   = "divvy.dev/simulated"
)

// Extended resources, and what a binding says of them.
const (
	ResourceGPU          = "divvy.dev/gpu"
	ResourceReplica      = "divvy.dev/replica"
	ResourceMemory       = "divvy.dev/memory"
	ResourceCores        = "divvy.dev/cores"
	AnnotationAllocation = "divvy.dev/allocation"
	resourceMIG          = "divvy.dev/mig-" // and a profile
	slotPrefix           = "slot-"
	MaxSlots             = 1024
)

var (
	claimUID   = regexp.MustCompile(`^` + uidPattern + `$`)
	deviceName = regexp.MustCompile(`^gpu-[0-9a-f-]{36}$`)
	partName   = regexp.MustCompile(`^(gpu-[0-9a-f-]{36})-([0-9]{1,2})-([0-9a-z-]+)$`)
	hyphens    = regexp.MustCompile(`-+`)
	migName    = regexp.MustCompile(`^mig-[0-9a-f-]{36}$`)
	profile    = regexp.MustCompile(`^[0-9][0-9a-z.+-]{0,40}[0-9a-z]$`) // 1g.5gb+me, 1g.24gb-me
)

// Share is the name of the nth share of a claim. Devices of the same name are never reused:
// a claim's UID is unique.
func Share(claim string, n int) (string, error) {
	if !claimUID.MatchString(claim) || n < 0 || n >= mostResults {
		return "", fmt.Errorf("no share can be named after number %d of claim %q", n, claim)
	}
	return sharePrefix + claim + "-" + strconv.Itoa(n), nil
}

// Booking is the name under which the device plugin books a MIG device, by its UUID.
func Booking(uuid string) string { return sharePrefix + Device(uuid) }

// Slot is the device that the kubelet knows for the nth container with GPUs at a time, and
// SlotShare the share of who has it.
func Slot(n int) string { return slotPrefix + strconv.Itoa(n) }

// SlotShare is the name of the share on a slot.
func SlotShare(n int) string { return sharePrefix + Slot(n) }

// SlotNumber is the number of a slot.
func SlotNumber(slot string) (int, bool) {
	text, ok := strings.CutPrefix(slot, slotPrefix)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0 && n < MaxSlots && Slot(n) == slot
}

// ShareSlot is the number of the slot that a share is on.
func ShareSlot(share string) (int, bool) {
	slot, ok := strings.CutPrefix(share, sharePrefix)
	if !ok {
		return 0, false
	}
	return SlotNumber(slot)
}

// ResourceMIG is the extended resource of the MIG devices of a profile, 1g.5gb+me: no name of a
// resource may have the plus of it.
func ResourceMIG(of string) (string, bool) {
	if !profile.MatchString(of) {
		return "", false
	}
	return resourceMIG + strings.ReplaceAll(of, "+", "."), true
}

// Device is the name of a GPU or a MIG device in a slice, from its UUID: the same after any restart and in
// any order.
func Device(uuid string) string { return strings.ToLower(uuid) }

// UUID is the UUID of the GPU that a device of a slice is.
func UUID(device string) (string, bool) {
	if !deviceName.MatchString(device) {
		return "", false
	}
	return "GPU" + strings.TrimPrefix(device, "gpu"), true
}

// MIG is the UUID of the MIG device that a device of a slice is.
func MIG(device string) (string, bool) {
	if !migName.MatchString(device) {
		return "", false
	}
	return "MIG" + strings.TrimPrefix(device, "mig"), true
}

// What a profile's name has that a device's may not, as hyphens: one, two or three.
var punctuation = [...]string{".", "+", "-"}

// Part is the name of a MIG device of a GPU that can be made, of a profile and at a placement unit:
// gpu-UUID-4-3g-20gb.
func Part(uuid, profile string, start int) (string, bool) {
	var encoded strings.Builder
	for _, r := range profile {
		n := slices.Index(punctuation[:], string(r)) + 1
		if encoded.WriteString(strings.Repeat("-", n)); n == 0 {
			encoded.WriteRune(r)
		}
	}
	name := Device(uuid) + "-" + strconv.Itoa(start) + "-" + encoded.String()
	gotUUID, gotProfile, gotStart, ok := PartOf(name)
	return name, ok && len(name) <= maxDeviceName && gotUUID == uuid && gotProfile == profile && gotStart == start
}

// PartOf is what Part has named so.
func PartOf(device string) (uuid, profile string, start int, ok bool) {
	parts := partName.FindStringSubmatch(device)
	if parts == nil || strings.HasPrefix(parts[3], "-") || strings.HasSuffix(parts[3], "-") {
		return "", "", 0, false
	}
	ok = true
	profile = hyphens.ReplaceAllStringFunc(parts[3], func(run string) string {
		if len(run) > len(punctuation) {
			ok = false
			return ""
		}
		return punctuation[len(run)-1]
	})
	uuid, known := UUID(parts[1])
	start, err := strconv.Atoi(parts[2])
	return uuid, profile, start, ok && known && err == nil && strconv.Itoa(start) == parts[2]
}
