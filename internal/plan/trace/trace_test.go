// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/placement"
)

const (
	nodeHeader = "sn,cpu_milli,memory_mib,gpu,model"
	jobHeader  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPublicListsAreRead(t *testing.T) {
	const folder = "../../../data/traces/openb/"
	nodes, err := ReadNodes(folder + "openb_node_list_gpu_node.csv")
	if err != nil {
		t.Fatal(err)
	}
	cards := 0
	for _, n := range nodes.Nodes {
		cards += len(n.Cards)
	}
	if len(nodes.Nodes) != 1213 || cards != 6212 || len(nodes.Notes) != 0 {
		t.Errorf("%d nodes, %d GPUs, notes %q", len(nodes.Nodes), cards, nodes.Notes)
	}
	files, err := filepath.Glob(folder + "openb_pod_list_*.csv.gz")
	if err != nil || len(files) != 9 {
		t.Fatalf("%d lists of pods, %v", len(files), err)
	}
	for _, file := range files {
		jobs, err := ReadJobs(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs.Jobs) < 7000 || len(jobs.Notes) != 0 {
			t.Errorf("%s: %d jobs, notes %q", file, len(jobs.Jobs), jobs.Notes)
		}
		if err := CheckModels(nodes, jobs, false); err != nil {
			t.Error(err)
		}
		if strings.Contains(jobs.Workload(), "openb") || strings.Contains(jobs.Workload(), ".") {
			t.Errorf("%s is called %q", file, jobs.Workload())
		}
	}
}

// TestBadInputIsNamed gives each kind of bad input and wants the line and a
// reason that names the trouble.
func TestBadInputIsNamed(t *testing.T) {
	gzipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, text)
		z.Close()
		return b.String()
	}
	for _, c := range []struct {
		jobs   bool
		text   string
		line   int
		reason string
	}{
		{false, "", 1, "the file is empty"},
		{false, "sn,cpu_milli,memory_mib,gpu\na,1,1,1\n", 1, `no column "model"`},
		{false, nodeHeader + ",model\na,1,1,1,T4,T4\n", 1, "twice"},
		{false, nodeHeader + "\n", 0, "no nodes"},
		{false, nodeHeader + "\na,1,1,1,T4\na,1,1,1,T4\n", 3, "line 2 already"},
		{false, nodeHeader + "\na,-1,1,1,T4\n", 2, "cpu_milli is -1"},
		{false, nodeHeader + "\na,1,1,99,T4\n", 2, "gpu is 99"},
		{false, nodeHeader + "\na,1,1,1\n", 2, "wrong number of fields"},
		{false, nodeHeader + "\n,1,1,1,T4\n", 2, "no name"},
		{false, nodeHeader + ",mig\na,1,1,1,T4,T4\n", 2, "no partitioning rules"},
		{false, nodeHeader + ",islands\na,1,1,2,T4,0|0|1\n", 2, "3 numbers for 2 GPUs"},
		{false, nodeHeader + ",islands\na,1,1,2,T4,0|x\n", 2, "want numbers"},
		{false, nodeHeader + ",islands\na,1,1,2,T4,0|77\n", 2, "island 77"},
		{true, "name,cpu,memory_mib,num_gpu,gpu_milli\na,1,1,1,1\n", 1, `no column "cpu_milli"`},
		{true, jobHeader + "\na,x,1,1,500\n", 2, `cpu_milli is "x"`},
		{true, jobHeader + "\na,1,1,1,500\nb,1,-5,1,500\n", 3, "memory_mib is -5"},
		{true, jobHeader + "\na,1,1,1,1500\n", 2, "gpu_milli is 1500"},
		{true, jobHeader + "\na,1,1,2,500\n", 2, "parts of several"},
		{true, jobHeader + "\na,1,1,0,500\n", 2, "no GPU"},
		{true, jobHeader + "\na,1.5,1,1,500\n", 2, `cpu_milli is "1.5"`},
		{true, jobHeader + "\n\"a,1,1,1,500\n", 2, "quote"},
		{true, jobHeader + ",creation_time,deletion_time\na,1,1,1,500,50,40\n", 2, "before it is created"},
		{true, jobHeader + ",linked\na,1,1,1,500,maybe\n", 2, "linked"},
		{true, "\x1f\x8bnot", 0, "not"},
		{true, gzipped(jobHeader + "\na,1,1,1,500\n")[:40], 0, "unexpected EOF"},
		{true, `{"jobs":[{"name":"a","gpus":1,"gpuMilli":500}`, 1, "ends too early"},
		{true, "{\"jobs\":[\n{\"name\":\"a\",\n\"gpus\":1,}]}", 3, "not JSON"},
		{true, "{\"jobs\":[\n{\"name\":\"a\",\"gpu\":1}]}", 2, `unknown field "gpu"`},
		{true, "{\"jobs\":[\n\n{\"name\":\"a\",\"gpus\":\"one\"}]}", 3, "gpus is a string"},
		{true, `{"jobs":7}`, 1, "no array"},
		{true, `{"work":[]}`, 1, "jobs or items"},
		{true, `[1]`, 1, "want an object"},
		{true, "{\"jobs\":[]}\n{}", 2, "more text"},
		{true, `{"jobs":[]}`, 0, "no jobs"},
		{false, `{"nodes":[{"name":"a","cpuMilli":1,"memoryMiB":1}]}`, 1, "needs cpuMilli, memoryMiB and gpus"},
		{false, `{"nodes":[{"name":"a","cpuMilli":-1,"memoryMiB":1,"gpus":1}]}`, 1, "negative"},
		{false, `{"items":[{"kind":"Node","metadata":{"name":"a"},"status":{"allocatable":{"cpu":"-4"}}}]}`, 1, "negative"},
		{true, `{"items":[{"kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"resources":{"requests":{"cpu":"4x"}}}]}}]}`, 1, `"4x" is no amount`},
	} {
		name := "list.csv"
		file := write(t, name, c.text)
		var err error
		if c.jobs {
			_, err = ReadJobs(file)
		} else {
			_, err = ReadNodes(file)
		}
		var bad *InputError
		if !errors.As(err, &bad) {
			t.Errorf("%q: %v, want an InputError", c.text, err)
			continue
		}
		if bad.File != file || bad.Line != c.line && c.line != 0 || !strings.Contains(bad.Reason, c.reason) {
			t.Errorf("%q: line %d: %s; want line %d: %s", c.text, bad.Line, bad.Reason, c.line, c.reason)
		}
	}
	if _, err := ReadJobs("no-such-file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestUnknownModelsAreNamed(t *testing.T) {
	nodes, err := ReadNodes(write(t, "n", nodeHeader+"\na,1000,1,1,T4\n"))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := ReadJobs(write(t, "j", jobHeader+",gpu_spec\na,1,1,1,500,T4|P100\nb,1,1,1,500,H9\n"))
	if err != nil {
		t.Fatal(err)
	}
	var bad *InputError
	if err := CheckModels(nodes, jobs, false); !errors.As(err, &bad) || bad.Line != 3 || !strings.Contains(bad.Reason, "H9") || !strings.Contains(bad.Reason, "T4") {
		t.Errorf("%v", err)
	}
	if err := CheckModels(nodes, jobs, true); err != nil {
		t.Error(err)
	}
	if notes := strings.Join(jobs.Notes, "\n"); !strings.Contains(notes, "P100") || !strings.Contains(notes, "1 jobs") {
		t.Errorf("notes %q", notes)
	}
}

func TestUnknownColumnIsTold(t *testing.T) {
	jobs, err := ReadJobs(write(t, "j", jobHeader+",gpu_spce,qos\na,1,1,1,500,T4,LS\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(jobs.Notes) != 1 || !strings.Contains(jobs.Notes[0], "gpu_spce") {
		t.Errorf("notes %q", jobs.Notes)
	}
}

func TestOwnShapeIsRead(t *testing.T) {
	nodes, err := ReadNodes(write(t, "n.json", `{"schema":"divvy.plan.nodes/v1","nodes":[
		{"name":"n","model":"H100","rack":"r","cpuMilli":64000,"memoryMiB":1024,"gpus":2,"gpuMemoryMiB":81559,"islands":[0,1],"mig":"h100-sxm-80gb","migOnDemand":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	n := nodes.Nodes[0]
	if n.Name != "n" || n.Rack != "r" || len(n.Cards) != 2 || n.Cards[1].Island != 1 || n.Cards[0].MIG.Key != "h100-sxm-80gb" || !n.Cards[0].OnDemand {
		t.Errorf("%+v", n)
	}
	jobs, err := ReadJobs(write(t, "j.json", `{"jobs":[{"name":"a","cpuMilli":1,"gpus":2,"gpuMilli":1000,"linked":true,"gang":"g","created":1.5,"deleted":9},
		{"name":"b","gpus":1,"profile":"2g.20gb","node":"n"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := jobs.Jobs[0], jobs.Jobs[1]; !a.Linked || a.Gang != "g" || !a.Timed || b.Profile != "2g.20gb" || b.Timed || b.Line != 2 || b.Node != "n" {
		t.Errorf("%+v %+v", a, b)
	}
}

func TestClusterListIsRead(t *testing.T) {
	nodes, err := ReadNodes("testdata/cluster.json")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, n := range nodes.Nodes {
		fmt.Fprintf(&got, "node %s %s rack=%s cpu=%d memory=%d cards=%d", n.Name, n.Model, n.Rack, n.CPUMilli, n.MemoryMiB, len(n.Cards))
		if len(n.Cards) > 0 {
			fmt.Fprintf(&got, "x%d", n.Cards[0].MemoryMiB)
			if n.Cards[0].MIG != nil {
				got.WriteString(" " + n.Cards[0].MIG.Key)
			}
		}
		got.WriteByte('\n')
	}
	jobs, err := ReadJobs("testdata/cluster.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs.Jobs {
		fmt.Fprintf(&got, "job %s on=%s cpu=%d memory=%d gpus=%d milli=%d gpumemory=%d models=%v profile=%s gang=%s priority=%d\n",
			j.Name, j.Node, j.CPUMilli, j.MemoryMiB, j.GPUs, j.GPUMilli, j.GPUMemoryMiB, j.Models, j.Profile, j.Gang, j.Priority)
	}
	for _, n := range append(nodes.Notes, jobs.Notes...) {
		got.WriteString("note " + n + "\n")
	}
	want, err := os.ReadFile("testdata/cluster.want")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// TestAMillionLines reads a list as long as a busy cluster writes in a year.
func TestAMillionLines(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second and 400 MB")
	}
	file := filepath.Join(t.TempDir(), "long.csv.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	fmt.Fprintln(z, jobHeader)
	for i := range 1_000_000 {
		fmt.Fprintf(z, "job-%d,%d,1024,1,%d\n", i, i%64000, 1+i%1000)
	}
	fmt.Fprintln(z, "last,1,1024,1,-1")
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	var bad *InputError
	if _, err := ReadJobs(file); !errors.As(err, &bad) || bad.Line != 1_000_002 {
		t.Errorf("%v, want line 1000002", err)
	}
}

// TestCompressedThousandfold: a small file that holds a large one costs little.
func TestCompressedThousandfold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bomb.json.gz")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	blank := bytes.Repeat([]byte(" "), 1<<20)
	_, err = z.Write([]byte(`{"jobs":[`))
	for range 32 {
		_, more := z.Write(blank)
		err = errors.Join(err, more)
	}
	_, more := z.Write([]byte(`{"name":"a","gpus":1,"gpuMilli":500}]}`))
	if err := errors.Join(err, more, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	var bad *InputError
	if _, err := ReadJobs(file); !errors.As(err, &bad) || !strings.Contains(bad.Error(), "100 times its size") {
		t.Errorf("a file of 32 MiB in 32 KiB: %v", err)
	}
}

// lineBreaks are those of YAML.
var lineBreaks = regexp.MustCompile("[\r\n\u0085\u2028\u2029]")

// fuzzList states what every parser keeps: no panic, an error that names the
// file, and records that are valid.
func fuzzList(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		check := func(err error) {
			var bad *InputError
			if err != nil && (!errors.As(err, &bad) || bad.File != "f" || bad.Reason == "" || bad.Line < 0 || bad.Line > len(lineBreaks.FindAll(text, -1))+2) {
				t.Fatalf("%v does not name the place", err)
			}
		}
		nodes, err := parseNodes("f", newInput("f", bytes.NewReader(text)))
		check(err)
		jobs, err2 := parseJobs("f", newInput("f", bytes.NewReader(text)))
		check(err2)
		if err == nil {
			if _, err := placement.NewFleet(nodes.Nodes); err != nil && !strings.Contains(err.Error(), "63 GPU models") {
				t.Fatalf("nodes were read that make no fleet: %v", err)
			}
		}
		if err2 == nil {
			for _, j := range jobs.Jobs {
				if err := j.Validate(); err != nil {
					t.Fatalf("a job was read that is not valid: %v", err)
				}
			}
		}
	})
}

func FuzzCSV(f *testing.F) {
	fuzzList(f, nodeHeader+"\na,1,1,1,T4\n", nodeHeader+",islands,mig\na,1,1,2,T4,0|1,a30-24gb\n",
		jobHeader+",gpu_spec,creation_time,deletion_time\na,1,1,1,500,T4|P100,1,2\n", "\ufeff"+jobHeader+"\n\"a\nb\",1,1,0,0\n")
}

func FuzzJSON(f *testing.F) {
	fuzzList(f, `{"nodes":[{"name":"n","cpuMilli":1,"memoryMiB":1,"gpus":1}]}`, `{"jobs":[{"name":"a","gpus":1,"gpuMilli":10}]}`, `{"jobs":[{]}`)
}

func FuzzYAML(f *testing.F) {
	fuzzList(f, "kind: List\nitems:\n- kind: Node\n  metadata: {name: n}\n  status: {allocatable: {cpu: 1}}\n- kind: Pod\n  spec: {containers: [{}]}\n", "---\n- {}\n---\n", "a: &x [*x]\n", "\r\r c:")
}

func FuzzKube(f *testing.F) {
	text, err := os.ReadFile("testdata/cluster.json")
	if err != nil {
		f.Fatal(err)
	}
	fuzzList(f, string(text), `{"items":[{"kind":"Pod","spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1e99"}}}]}}]}`)
}
