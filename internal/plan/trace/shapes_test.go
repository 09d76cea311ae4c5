// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"io"
	"os"
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
	event := func(of, object string) string { return `{"type": "` + of + `", "object": ` + object + `}` }
	watched := event("ADDED", kind("Node", node)) + "\n" + event("ADDED", kind("Pod", pod))
	for what, text := range map[string]string{
		"events of a watch":  watched,
		"events as an array": "[" + event("ADDED", kind("Node", node)) + "," + event("MODIFIED", kind("Pod", pod)) + "]",
		"the last event counts": event("ADDED", `{"kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n", "containers": [{}]}}`) +
			event("ADDED", `{"kind": "Pod", "metadata": {"name": "q", "namespace": "d"}, "spec": {"containers": [{}]}}`) + watched +
			event("DELETED", `{"kind": "Pod", "metadata": {"name": "q", "namespace": "d"}, "spec": {"containers": [{}]}}`) +
			event("DELETED", kind("Pod", pod)) + event("ADDED", kind("Pod", pod)) + event("MODIFIED", kind("Node", node)) +
			event("BOOKMARK", `{"kind": "Pod", "metadata": {"resourceVersion": "7"}}`),
		"YAML of a watch":           "object: " + kind("Node", node) + "\ntype: ADDED\n---\nobject: " + kind("Pod", pod) + "\ntype: ADDED\n",
		"a list, then events":       `{"kind": "NodeList", "items": [` + node + `]}` + event("ADDED", kind("Pod", pod)),
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

// TestResizedPods: counted as the scheduler does, by the most of what a container asks, has and is
// allocated, and by the last two alone where its node can never give what it asks; and named.
func TestResizedPods(t *testing.T) {
	const names, notes = `{"metadata": {"name": "p", "namespace": "d"}, `, "list: 1 pods are being resized: counted by the most of what they ask, have and are allocated"
	pod := func(cpu, memory, status string) string {
		return `{"kind": "PodList", "items": [` + names + `"spec": {"nodeName": "n", "containers": [{"name": "a", "resources": {"requests": {"cpu": "` + cpu + `", "memory": "` + memory +
			`"}}}, {"name": "b", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running", ` + status + `}}]}`
	}
	of := func(has, allocated string) string {
		return `"containerStatuses": [{"name": "b", "resources": {}}, {"name": "a", "resources": {"requests": {"cpu": "` + has + `", "memory": "1Gi"}}, "allocatedResources": {"cpu": "` + allocated + `", "memory": "1Gi"}}]`
	}
	for what, c := range map[string]struct {
		list    string
		milli   int64
		mib     int64
		resized bool
	}{
		"as asked":             {pod("2", "1Gi", of("2", "2000m")), 3000, 1024, false},
		"not told":             {pod("2", "1Gi", `"containerStatuses": [{"name": "a"}]`), 3000, 1024, false},
		"shrinks":              {pod("1", "512Mi", of("4", "4")), 5000, 1024, true},
		"grows":                {pod("4", "2Gi", of("2", "2")), 5000, 2048, true},
		"allocated, not there": {pod("4", "1Gi", of("2", "4")), 5000, 1024, true},
		"can never be":         {pod("64", "512Gi", of("2", "3")+`, "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]`), 4000, 1024, true},
		"can not be now":       {pod("64", "1Gi", of("2", "2")+`, "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]`), 65000, 1024, true},
		"can never be, of old": {pod("64", "512Gi", of("2", "2")+`, "resize": "Infeasible"`), 3000, 1024, true},
	} {
		jobs, err := ReadJobs(write(t, "list", c.list))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		j := jobs.Jobs[0]
		named := len(jobs.Notes) == 1 && strings.HasSuffix(jobs.Notes[0], notes)
		if j.CPUMilli != c.milli || j.MemoryMiB != c.mib || named != c.resized || !named && len(jobs.Notes) > 0 {
			t.Errorf("%s: %d and %d, %q", what, j.CPUMilli, j.MemoryMiB, jobs.Notes)
		}
	}
}

// TestPipe gives what it has once, and both lists are read from it.
func TestPipe(t *testing.T) {
	for what, of := range map[string]func(t *testing.T) string{
		"a pipe": func(t *testing.T) string {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			go func() {
				defer w.Close()
				io.WriteString(w, "kind: List\nitems:\n- {kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 8}}}\n"+
					"- {kind: Pod, metadata: {name: p, namespace: d}, spec: {containers: [{resources: {}}]}}\n")
			}()
			return fmt.Sprintf("/dev/fd/%d", r.Fd())
		},
		"a file": func(t *testing.T) string {
			return write(t, "list", `{"items": [{"kind": "Node", "metadata": {"name": "n"}}, {"kind": "Pod", "metadata": {"name": "p", "namespace": "d"}}]}`)
		},
	} {
		source, err := Open(of(t))
		if err != nil {
			t.Fatal(err)
		}
		nodes, err1 := source.Nodes()
		jobs, err2 := source.JobsBeside()
		if err1 != nil || err2 != nil || len(nodes.Nodes) != 1 || len(jobs.Jobs) != 1 {
			t.Errorf("%s: %+v (%v), %+v (%v)", what, nodes, err1, jobs, err2)
		}
	}
}

// TestJobsBesideNodes are looked for by what a list is, whatever its name; that there are
// none is no error, and what cannot be read is.
func TestJobsBesideNodes(t *testing.T) {
	for text, want := range map[string]int{
		nodeHeader + "\na,1,1,1,T4\n":                       0,
		`{"nodes": []}`:                                     0,
		`{"nodes": [], "jobs": [{"name": "a"}]}`:            1,
		`{"kind": "NodeList", "items": []}`:                 0,
		`{"kind": "Node", "metadata": {"name": "a"}}`:       0,
		"kind: NodeList\nitems:\n- {metadata: {name: a}}\n": 0,
		"kind: Pod\nmetadata: {name: a}\n":                  1,
		`{"kind": "PodList", "items": [{}, {"spec": 7}]}`:   -1,
		`{"nodes": [], "jobs": [{"nom": "a"}]}`:             -1,
	} {
		source, err := Open(write(t, "list", text))
		if err != nil {
			t.Fatal(err)
		}
		jobs, err := source.JobsBeside()
		if (err != nil) != (want < 0) || err == nil && len(jobs.Jobs) != want {
			t.Errorf("%s: %+v, %v", text, jobs, err)
		}
	}
}

// TestUnknownLists: one line that says what is wanted.
func TestUnknownLists(t *testing.T) {
	for _, text := range []string{
		"NAME   STATUS   ROLES\nn1     Ready    worker\n", "\x7fELF\x02\x01\x01\x00", "hello", "No resources found in default namespace.\n",
		"error: the server doesn't have a resource type \"nodez\"\n", "<html>\n", `"text"`, "[]", "{}", `{"kind": "Status", "message": "Forbidden"}`,
		`{"kind": "Status", "status": "Failure", "message": "no\nentry"}`, "kind: Status\nstatus: Failure\n",
		`{"kind": "Node", "status": "Failure"}`, `{"kind": "Pod", "spec": 7}`,
		`{"type": "ADDED"}`, `{"type": "SHRUNK", "object": {"kind": "Pod"}}`, `{"object": {"kind": "Node"}}`, "object: {kind: Pod}\n", "type: ADDED\nobject: 7\n",
		`{"type": "ERROR", "object": {"kind": "Status", "message": "too old\nresource version"}}`,
		`{"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "p"}}}{"type": "DELETED", "object": {"kind": "Pod", "metadata": {"name": "p"}}}`,
		"kind: Deployment\nmetadata: {name: a}\n", "a: 1\n", "---\n", "- 1\n", "kind: List\nitems: 7\n", "a: &x {b: 1}\nc: *x\n", "kind: [\n",
	} {
		for _, read := range []func(string) error{
			func(file string) error { _, err := ReadNodes(file); return err },
			func(file string) error { _, err := ReadJobs(file); return err },
		} {
			err := read(write(t, "list", text))
			var bad *InputError
			if !errors.As(err, &bad) || strings.ContainsAny(bad.Reason, "\n{") || bad.Reason == "" {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}
