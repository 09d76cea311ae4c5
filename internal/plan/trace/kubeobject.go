// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
)

// kubeObject has the fields of a Node, Pod, claim or list of such that matter. It takes
// any others: the decoder's strictness is for our own shapes.
type kubeObject struct {
	Kind     string          `json:"kind"`
	Type     string          `json:"type"`    // of an event
	Object   *kubeObject     `json:"object"`  // of an event
	Message  string          `json:"message"` // of an answer in the place of an object
	Items    json.RawMessage `json:"items"`   // of a list: read one by one
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		CreationTimestamp string            `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec   kubeSpec `json:"spec"`
	Status struct {
		Phase       string  `json:"phase"`
		Nominated   string  `json:"nominatedNodeName"`
		Allocatable amounts `json:"allocatable"`
		Conditions  []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"conditions"`
		Containers     []kubeGiven `json:"containerStatuses"`
		InitContainers []kubeGiven `json:"initContainerStatuses"`
		Resize         any         `json:"resize"` // before Kubernetes 1.33; of other kinds anything
	} `json:"status"`
}

// kubeSpec is that of a node, of a pod, and of a claim or its template.
type kubeSpec struct {
	Unschedulable bool        `json:"unschedulable"`
	Taints        []kubeTaint `json:"taints"`

	NodeName        string            `json:"nodeName"`
	Priority        int               `json:"priority"`
	NodeSelector    map[string]string `json:"nodeSelector"`
	Tolerations     []kubeToleration  `json:"tolerations"`
	Affinity        kubeAffinity      `json:"affinity"`
	Spread          []kubeSpread      `json:"topologySpreadConstraints"`
	SchedulingGates []struct{}        `json:"schedulingGates"`
	Volumes         []kubeVolume      `json:"volumes"`
	Containers      []kubeContainer   `json:"containers"`
	InitContainers  []kubeContainer   `json:"initContainers"`
	Resources       kubeResources     `json:"resources"`
	ResourceClaims  []kubePodClaim    `json:"resourceClaims"`
	Overhead        amounts           `json:"overhead"`
	Group           struct {
		Name string `json:"podGroupName"`
	} `json:"schedulingGroup"`

	Devices kubeDevices `json:"devices"` // of a claim
	Spec    struct {    // of a claim's template
		Devices kubeDevices `json:"devices"`
	} `json:"spec"`
}

// kubeGiven is what a container has, and what its node has set aside for it: while it is
// resized that is not what it asks for.
type kubeGiven struct {
	Name      string         `json:"name"`
	Resources *kubeResources `json:"resources"`
	Allocated amounts        `json:"allocatedResources"`
}

type kubeContainer struct {
	Name          string        `json:"name"`
	RestartPolicy string        `json:"restartPolicy"`
	Resources     kubeResources `json:"resources"`
	Ports         []struct {
		HostPort int `json:"hostPort"`
	} `json:"ports"`
}

type kubeResources struct {
	Requests amounts `json:"requests"`
	Limits   amounts `json:"limits"`
}

type kubeSpread struct {
	WhenUnsatisfiable string `json:"whenUnsatisfiable"`
}

type kubeVolume struct {
	Claim *struct{} `json:"persistentVolumeClaim"`
	Own   *struct{} `json:"ephemeral"`
}

type kubeAffinity struct {
	Node struct {
		Required struct {
			Terms []kubeTerm `json:"nodeSelectorTerms"`
		} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `json:"nodeAffinity"`
	Pod struct {
		Required []struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `json:"podAffinity"`
	Anti struct {
		Required []struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `json:"podAntiAffinity"`
}

// kubeTerm is met when all of its expressions are.
type kubeTerm struct {
	Expressions []kubeExpression `json:"matchExpressions"`
	Fields      []kubeExpression `json:"matchFields"`
}

type kubeExpression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

type kubeTaint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

type kubeToleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

// kubePodClaim is how a pod names a claim, or the template of one of its own.
type kubePodClaim struct {
	Name     string `json:"name"`
	Claim    string `json:"resourceClaimName"`
	Template string `json:"resourceClaimTemplateName"`
}

type kubeDevices struct {
	Requests []kubeDeviceRequest `json:"requests"`
}

// kubeDeviceRequest asks for devices: by one of the fields of v1, or as before it.
type kubeDeviceRequest struct {
	Exactly *kubeDeviceAsk  `json:"exactly"`
	First   []kubeDeviceAsk `json:"firstAvailable"`
	kubeDeviceAsk
}

type kubeDeviceAsk struct {
	Class string `json:"deviceClassName"`
	Count int    `json:"count"`
	Mode  string `json:"allocationMode"`
}

// amounts are of resources, by name.
type amounts map[string]amount

// amount is how much of a resource, as it is written.
type amount string

// UnmarshalJSON takes a number too, as people write it.
func (a *amount) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, (*string)(a))
	}
	var n json.Number
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	*a = amount(n)
	return nil
}

// quantity reads a Kubernetes amount such as 250m, 4, 1.5e3, 8Gi or 500M.
func quantity(from amount) (float64, error) {
	text := string(from)
	number := strings.TrimRight(text, "numkMGTPEi")
	suffix := text[len(number):]
	factors := map[string]float64{
		"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
	}
	factor, ok := factors[suffix]
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !ok || math.IsNaN(n) || math.IsInf(n*factor, 0) || strings.ContainsAny(number, "xXpP_"):
		return 0, fmt.Errorf("%q is no amount", text)
	case n < 0:
		return 0, fmt.Errorf("%q is negative", text)
	}
	return n * factor, nil
}

// asked is what one container, or a pod as a whole, asks: its requests, and limits where
// it has no request.
func (r kubeResources) asked() (map[string]float64, error) {
	out := map[string]float64{}
	for _, amounts := range []amounts{r.Limits, r.Requests} {
		for key, text := range amounts {
			n, err := quantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = n
		}
	}
	return out, nil
}

// infeasible says whether a pod's node can never give it what it is to be resized to.
func (o *kubeObject) infeasible() bool {
	const infeasible = "Infeasible"
	for _, c := range o.Status.Conditions {
		if c.Type == "PodResizePending" {
			return c.Reason == infeasible
		}
	}
	return o.Status.Resize == infeasible
}

// counted is what the scheduler counts for what has asked, and has been given: of each
// resource the most of what it asks, has, and is set aside for it; what can never be given
// does not count. It says whether that is something else than asked.
func (o *kubeObject) counted(asked kubeResources, given *kubeGiven) (out map[string]float64, resized bool, err error) {
	wanted, err := asked.asked()
	if err != nil || given == nil || given.Resources == nil {
		return wanted, false, err
	}
	has, err := kubeResources{Requests: given.Resources.Requests}.asked()
	if err != nil {
		return nil, false, err
	}
	allocated, err := kubeResources{Requests: given.Allocated}.asked()
	if err != nil {
		return nil, false, err
	}
	out = maps.Clone(wanted)
	if o.infeasible() {
		// Only what can be resized is told of what it has.
		for _, key := range []string{"cpu", "memory"} {
			if _, told := has[key]; told {
				out[key] = 0
			}
		}
	}
	for _, amounts := range []map[string]float64{has, allocated} {
		for key, n := range amounts {
			out[key] = math.Max(out[key], n)
		}
	}
	for _, amounts := range []map[string]float64{out, has} {
		for key, n := range amounts {
			resized = resized || math.Abs(n-wanted[key]) > 1e-9*n // the same is written in many ways
		}
	}
	return out, resized, nil
}

// givenTo is what of a list is told of a container; nil: nothing.
func givenTo(list []kubeGiven, name string) *kubeGiven {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// asked adds up a pod's requests as the scheduler does: the containers and
// sidecars together, or the largest of the containers that run before them. What the pod
// asks as a whole stands for that of its containers. It says whether the pod is being resized,
// so that something else than what it asks counts.
func (o *kubeObject) asked() (total map[string]float64, resized bool, err error) {
	total = map[string]float64{}
	before := map[string]float64{}
	sidecars := map[string]float64{}
	for _, c := range o.Spec.InitContainers {
		given := givenTo(o.Status.InitContainers, c.Name)
		if c.RestartPolicy != "Always" {
			given = nil // it ends, and is not resized
		}
		amounts, differs, err := o.counted(c.Resources, given)
		if err != nil {
			return nil, false, err
		}
		resized = resized || differs
		for key, n := range amounts {
			if c.RestartPolicy == "Always" {
				sidecars[key] += n
				total[key] += n
			} else {
				before[key] = math.Max(before[key], n+sidecars[key])
			}
		}
	}
	for _, c := range o.Spec.Containers {
		amounts, differs, err := o.counted(c.Resources, givenTo(o.Status.Containers, c.Name))
		if err != nil {
			return nil, false, err
		}
		resized = resized || differs
		for key, n := range amounts {
			total[key] += n
		}
	}
	for key, n := range before {
		total[key] = math.Max(total[key], n)
	}
	whole, err := o.Spec.Resources.asked()
	if err != nil {
		return nil, false, err
	}
	for key, n := range whole {
		total[key] = n
	}
	for key, text := range o.Spec.Overhead {
		n, err := quantity(text)
		if err != nil {
			return nil, false, fmt.Errorf("overhead %s: %w", key, err)
		}
		total[key] += n
	}
	return total, resized, nil
}
