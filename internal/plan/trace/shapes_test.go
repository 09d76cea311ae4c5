// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

// TestShapesOfClusterLists: however kubectl was asked, the same nodes and pods come out.
func TestShapesOfClusterLists(t *testing.T) {
	const (
		node   = `{"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {"allocatable": {"cpu": "8", "memory": "32Gi"}}}`
		pod    = `{"metadata": {"name": "p", "namespace": "d"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "250m"}}}]}, "status": {"phase": "Pending"}}`
		claims = `{"kind": "ResourceClaimList", "items": [{"metadata": {"name": "c", "namespace": "d"}}]}`
	)
	kind := func(kind, object string) string { return `{"kind": "` + kind + `", ` + object[1:] }
	wide := func(big bool, text string) string {
		var out []byte
		for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
			if big {
				out = append(out, byte(u>>8), byte(u))
			} else {
				out = append(out, byte(u), byte(u>>8))
			}
		}
		return string(out)
	}
	list := `{"apiVersion": "v1", "kind": "List", "items": [` + kind("Node", node) + `, ` + kind("Pod", pod) + `]}`
	yaml := `apiVersion: v1
kind: List
items:
- kind: Node
  metadata: {name: n}
  spec:
    taints:
    - key: k
      effect: NoSchedule
  status:
    allocatable:
      cpu: 8
      memory: 32Gi
- kind: Pod
  metadata:
    name: p
    namespace: d
  spec:
    containers:
    - resources:
        requests:
          cpu: 250m
  status:
    phase: Pending
`
	for what, text := range map[string]string{
		"a list":                    list,
		"raw lists, one by one":     `{"kind": "NodeList", "items": [` + node + `]}` + "\n" + `{"kind": "PodList", "items": [` + pod + `]}`,
		"kinds after items":         `{"items": [` + node + `], "kind": "NodeList"}{"items": [` + pod + `], "kind": "PodList"}`,
		"several, one empty":        `{"kind": "List", "items": null}` + list + claims,
		"objects, one by one":       kind("Node", node) + "\n" + kind("Pod", pod),
		"an array":                  "[" + kind("Node", node) + "," + kind("Pod", pod) + "]",
		"an array of lists":         `[{"kind": "NodeList", "items": [` + node + `]}, {"kind": "PodList", "items": [` + pod + `]}]`,
		"a list of lists":           `{"kind": "List", "items": [{"kind": "NodeList", "items": [` + node + `]}, {"kind": "PodList", "items": [` + pod + `]}]}`,
		"no kinds at all":           `{"items": [` + node + `, ` + pod + `]}`,
		"with a mark":               "\ufeff" + list,
		"by PowerShell":             wide(false, list),
		"UTF-16, big end first":     wide(true, list),
		"YAML":                      yaml,
		"YAML behind a line":        "---\n" + yaml,
		"YAML documents":            "kind: NodeList\nitems:\n- " + node + "\n---\n---\n" + kind("Pod", pod) + "\n",
		"YAML sequence":             "- " + kind("Node", node) + "\n- " + kind("Pod", pod) + "\n",
		"YAML by PowerShell":        wide(false, strings.ReplaceAll(yaml, "\n", "\r\n")),
		"the same pod in two lists": list + `{"kind": "PodList", "items": [` + pod + `]}`,
	} {
		file := write(t, "list", text)
		nodes, err := ReadNodes(file)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		jobs, err := ReadJobs(file)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		Bind(nodes, jobs)
		got := fmt.Sprintf("%s %d %d; %s %d %v", nodes.Nodes[0].Name, nodes.Nodes[0].CPUMilli, nodes.Nodes[0].MemoryMiB, jobs.Jobs[0].Name, jobs.Jobs[0].CPUMilli, jobs.Jobs[0].Where)
		if want := "n 8000 32768; d/p 250 &{map[n:taints]}"; got != want || len(nodes.Nodes) != 1 || len(jobs.Jobs) != 1 {
			t.Errorf("%s: %s, %d nodes and %d jobs, want %s", what, got, len(nodes.Nodes), len(jobs.Jobs), want)
		}
	}
}

// TestUnknownLists: one line that says what is wanted.
func TestUnknownLists(t *testing.T) {
	for _, text := range []string{
		"NAME   STATUS   ROLES\nn1     Ready    worker\n", "\x7fELF\x02\x01\x01\x00", "hello", "No resources found in default namespace.\n",
		"error: the server doesn't have a resource type \"nodez\"\n", "<html>\n", `"text"`, "[]", "{}", `{"kind": "Status", "message": "Forbidden"}`,
		"kind: Deployment\nmetadata: {name: a}\n", "a: 1\n", "---\n", "- 1\n", "kind: List\nitems: 7\n", "a: &x {b: 1}\nc: *x\n", "kind: [\n",
	} {
		for _, read := range []func(string) error{
			func(file string) error { _, err := ReadNodes(file); return err },
			func(file string) error { _, err := ReadJobs(file); return err },
		} {
			err := read(write(t, "list", text))
			var bad *InputError
			if !errors.As(err, &bad) || strings.Contains(bad.Reason, "\n") || bad.Reason == "" {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
