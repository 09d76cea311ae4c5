// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"strings"
)

// claims are what pods ask for by dynamic resource allocation: those of the list, and
// which have been counted.
type claims struct {
	asked   map[string]kubeDevices // by kind, namespace and name
	counted map[string]bool        // claims that several pods may share
	kinds   map[string]int         // of objects that have no bearing
}

func newClaims() claims {
	return claims{asked: map[string]kubeDevices{}, counted: map[string]bool{}, kinds: map[string]int{}}
}

func (c *claims) take(o *kubeObject) {
	devices := o.Spec.Devices
	if o.Kind == "ResourceClaimTemplate" {
		devices = o.Spec.Spec.Devices
	}
	c.asked[claimKey(o.Kind, o.Metadata.Namespace, o.Metadata.Name)] = devices
}

func claimKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// cards is how many whole GPUs the claims of a pod come to. A claim that the list does not
// have is taken for one.
func (c *claims) cards(pods *kubePods, o *kubeObject) (cards float64) {
	unknown, others, shared := false, false, false
	for _, claim := range o.Spec.ResourceClaims {
		key := claimKey("ResourceClaimTemplate", o.Metadata.Namespace, claim.Template)
		if claim.Claim != "" {
			key = claimKey("ResourceClaim", o.Metadata.Namespace, claim.Claim)
			if c.counted[key] {
				shared = true // with another pod
				continue
			}
			c.counted[key] = true
		}
		devices, known := c.asked[key]
		if !known {
			unknown = true
			cards++
			continue
		}
		for _, r := range devices.Requests {
			ask := r.kubeDeviceAsk
			switch {
			case r.Exactly != nil:
				ask = *r.Exactly
			case len(r.First) > 0:
				ask = r.First[0]
			}
			if !strings.Contains(ask.Class, "gpu") {
				others = true // network cards, and parts that only the driver knows
				continue
			}
			cards += float64(max(1, ask.Count))
			others = others || ask.Mode == "All" || len(r.First) > 1
		}
	}
	if unknown {
		pods.left["%d pods with resource claims that the list does not have: each claim is taken for one GPU"]++
	}
	if shared {
		pods.left["%d pods share a resource claim with another pod: it is counted once, and they are not kept to its node"]++
	}
	if others {
		pods.left["%d pods with resource claims for other devices than a number of GPUs: not considered"]++
	}
	return cards
}
