// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// fits asks of the lists in text whether the pod default/want fits, and returns what is
// noted too.
func fits(t *testing.T, text string) (*Answer, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := trace.ReadNodes(file)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := trace.ReadJobs(file)
	if err != nil {
		t.Fatal(err)
	}
	trace.Bind(nodes, jobs)
	q := Fits{Fleet: Fleet{Nodes: nodes.Nodes, KeepPercent: 100}, Jobs: jobs, Policy: "divvy", Seed: 1}
	for _, j := range jobs.Jobs {
		if j.Name == "default/want" {
			q.Job = j.Request
		}
	}
	if q.Job.Name == "" {
		t.Fatalf("no pod default/want; notes %q", jobs.Notes)
	}
	a, err := q.Run()
	if err != nil {
		t.Fatal(err)
	}
	return a, strings.Join(append(nodes.Notes, append(jobs.Notes, a.Misplaced...)...), "\n")
}

// blocked checks that it fits nowhere, for this reason among others; empty: it fits.
func blocked(t *testing.T, what, text string, reason placement.Reason) (notes string) {
	t.Helper()
	a, notes := fits(t, text)
	found := reason == ""
	for _, b := range a.Blockers {
		found = found || b.Reason == string(reason)
	}
	if a.Fits != (reason == "") || !found {
		t.Errorf("%s: fits %v, blockers %+v, want %q; notes:\n%s", what, a.Fits, a.Blockers, reason, notes)
	}
	return notes
}

// TestReportedClusters: what nodes are full of is honoured, and the same pod fits when
// something of it is free.
func TestReportedClusters(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "cases", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ended := func(text string, pod string) string {
		before, after, _ := strings.Cut(text, `"name": "`+pod+`"`)
		return before + `"name": "` + pod + `"` + strings.Replace(after, `"Running"`, `"Succeeded"`, 1)
	}
	blocked(t, "amd", read("amd.json"), "amd.com/gpu")
	blocked(t, "amd, ended", ended(read("amd.json"), "train"), "")
	blocked(t, "shared", read("shared.json"), "nvidia.com/gpu.shared")
	blocked(t, "shared, ended", ended(read("shared.json"), "p2"), "")
	if notes := blocked(t, "dra", read("dra.json"), placement.ReasonBusy); !strings.Contains(notes, "2 pods with resource claims") {
		t.Error(notes)
	}
	blocked(t, "dra, ended", ended(read("dra.json"), "runs"), "")
	hami := read("hami.json")
	blocked(t, "hami", hami, "")
	blocked(t, "hami, more memory", strings.Replace(hami, `"7000"`, `"9035"`, 2), placement.ReasonGPUMemory)
	blocked(t, "hami, all its memory", strings.ReplaceAll(strings.ReplaceAll(hami, `"nvidia.com/gpumem": "7000",`, ""), `"nvidia.com/gpumem": "7000"`, ""), placement.ReasonBusy)
	blocked(t, "hami, more cores", strings.ReplaceAll(hami, `"nvidia.com/gpucores": "30"`, `"nvidia.com/gpucores": "34"`), placement.ReasonBusy)
}

// one is a node and a pod that waits, with more in their fields.
func one(nodeLabels, nodeSpec, allocatable, podSpec string) string {
	return `{"items": [
	 {"kind": "Node", "metadata": {"name": "n", "labels": {` + nodeLabels + `}}, "spec": {` + nodeSpec + `},
	  "status": {"allocatable": {"cpu": "8", "memory": "32Gi"` + allocatable + `}}},
	 {"kind": "Pod", "metadata": {"name": "runs", "namespace": "default"}, "spec": {"nodeName": "n", "containers": [
	  {"resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running"}},
	 {"kind": "Pod", "metadata": {"name": "want", "namespace": "default"}, "spec": {` + podSpec + `}, "status": {"phase": "Pending"}}]}`
}

// TestRulesOfPods: taints, selectors, affinity, the limit of pods and what pods ask as a
// whole decide, each with a twin that fits.
func TestRulesOfPods(t *testing.T) {
	const plain = `"containers": [{"resources": {"requests": {"cpu": "1"}}}]`
	taint := func(effect string) string {
		return `"taints": [{"key": "gpu", "value": "yes", "effect": "` + effect + `"}]`
	}
	tolerate := func(text string) string { return plain + `, "tolerations": [{` + text + `}]` }
	affinity := func(expressions string) string {
		return plain + `, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [` + expressions + `]}}}`
	}
	const taints, selector = placement.Reason("taints"), placement.Reason("node selector or affinity")
	for _, c := range []struct {
		what, labels, spec, allocatable, pod string
		want                                 placement.Reason
	}{
		{"plain", "", "", "", plain, ""},
		{"taint", "", taint("NoSchedule"), "", plain, taints},
		{"taint that ends pods", "", taint("NoExecute"), "", plain, taints},
		{"soft taint", "", taint("PreferNoSchedule"), "", plain, ""},
		{"tolerated", "", taint("NoSchedule"), "", tolerate(`"key": "gpu", "value": "yes"`), ""},
		{"tolerated whatever its value", "", taint("NoSchedule"), "", tolerate(`"key": "gpu", "operator": "Exists"`), ""},
		{"all tolerated", "", taint("NoSchedule"), "", tolerate(`"operator": "Exists"`), ""},
		{"another value tolerated", "", taint("NoSchedule"), "", tolerate(`"key": "gpu", "value": "no"`), taints},
		{"another effect tolerated", "", taint("NoSchedule"), "", tolerate(`"key": "gpu", "operator": "Exists", "effect": "NoExecute"`), taints},
		{"selector", `"zone": "a"`, "", "", plain + `, "nodeSelector": {"zone": "b"}`, selector},
		{"selector that is met", `"zone": "a"`, "", "", plain + `, "nodeSelector": {"zone": "a"}`, ""},
		{"affinity", `"zone": "a"`, "", "", affinity(`{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a"]}]}`), selector},
		{"one of two terms", `"zone": "a"`, "", "", affinity(`{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
			{"matchExpressions": [{"key": "zone", "operator": "Exists"}, {"key": "gone", "operator": "DoesNotExist"}]}`), ""},
		{"more than", `"generation": "3"`, "", "", affinity(`{"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["3"]}]}`), selector},
		{"less than", `"generation": "3"`, "", "", affinity(`{"matchExpressions": [{"key": "generation", "operator": "Lt", "values": ["4"]}]}`), ""},
		{"by name", "", "", "", affinity(`{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}`), selector},
		{"by host name", "", "", "", plain + `, "nodeSelector": {"kubernetes.io/hostname": "n"}`, ""},
		{"pods", "", "", `, "pods": "1"`, plain, "pods"},
		{"room for a pod", "", "", `, "pods": "2"`, plain, ""},
		{"the pod as a whole", "", "", "", plain + `, "resources": {"requests": {"cpu": "8"}}`, placement.ReasonCPU},
		{"less as a whole", "", "", "", `"resources": {"requests": {"cpu": 7}}, "containers": [{"resources": {"limits": {"cpu": "9"}}}]`, ""},
		{"a device", "", "", `, "example.com/fpga": "0"`, `"containers": [{"resources": {"limits": {"example.com/fpga": "1"}}}]`, "example.com/fpga"},
		{"a device of no node", "", "", "", `"containers": [{"resources": {"limits": {"example.com/fpga": "1"}}}]`, "example.com/fpga"},
		{"huge pages", "", "", `, "hugepages-2Mi": "64Mi"`, `"containers": [{"resources": {"limits": {"hugepages-2Mi": "128Mi"}}}]`, "hugepages-2Mi"},
		{"NVIDIA's GPU on AMD's", "", "", `, "amd.com/gpu": "8"`, `"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]`, "nvidia.com/gpu"},
	} {
		blocked(t, c.what, one(c.labels, c.spec, c.allocatable, c.pod), c.want)
	}
}

// TestWhatIsNotConsidered is named, with how many pods have it.
func TestWhatIsNotConsidered(t *testing.T) {
	const plain = `"containers": [{"ports": [{"hostPort": 80}]}]`
	notes := blocked(t, "all", one("", "", "", plain+`, "affinity": {
		"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]},
		"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a"}]}},
		"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}], "schedulingGates": [{"name": "g"}],
		"volumes": [{"persistentVolumeClaim": {"claimName": "v"}}]`), "")
	for _, want := range []string{"pod affinity", "anti-affinity", "topology spread constraints", "scheduling gates", "volumes that may be tied to nodes", "ports of their host"} {
		if !strings.Contains(notes, "1 pods with "+want+": not considered") {
			t.Errorf("%s is not named in\n%s", want, notes)
		}
	}
	for what, list := range map[string]string{
		"1 pods for which a node is nominated": strings.Replace(one("", "", "", `"containers": []`), `"phase": "Pending"`, `"phase": "Pending", "nominatedNodeName": "n"`, 1),
		"1 pods ask for a part of a GPU by aliyun.com/gpu-mem: counted by node": one("", "", `, "aliyun.com/gpu-mem": "16"`,
			`"containers": [{"resources": {"limits": {"aliyun.com/gpu-mem": "6"}}}]`),
		"1 pods share a resource claim with another pod: it is counted once": strings.ReplaceAll(one("", "", "", `"containers": []`),
			`"containers"`, `"resourceClaims": [{"name": "g", "resourceClaimName": "one"}], "containers"`),
	} {
		if _, notes := fits(t, list); !strings.Contains(notes, what) {
			t.Errorf("%q is not in\n%s", what, notes)
		}
	}
	if notes := blocked(t, "none", one("", "", "", `"containers": []`), ""); notes != "" {
		t.Error(notes)
	}
}
