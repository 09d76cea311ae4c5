// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// planMost is what divvy plan has resident at most, whatever it reads (docs/security.md).
const planMost = 4 << 30

// The largest lists that divvy plan takes, or refuses only once it has read them, keep it under its bound, of
// whatever shape they are.
func TestPlanMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("reads gigabytes: belongs to make soak")
	}
	const (
		csvBytes, jsonBytes, yamlBytes = 1 << 30, 256 << 20, 64 << 20
		records, objects, object       = 2_000_000, 500_000, 4 << 20
	)
	times := func(w io.Writer, n int, text string) {
		for range n {
			_, _ = io.WriteString(w, text)
		}
	}
	for name, c := range map[string]struct {
		write func(w io.Writer)
		says  string // empty: it is planned
	}{
		"jobs.csv": {func(w io.Writer) {
			fmt.Fprintln(w, "name,cpu_milli,memory_mib,num_gpu,gpu_milli")
			long := strings.Repeat("a", csvBytes/records-32)
			for n := range records {
				fmt.Fprintf(w, "%d%s,1,1,1,500\n", n, long)
			}
		}, ""},
		"jobs.json": {func(w io.Writer) {
			long := strings.Repeat("a", jsonBytes/records-56)
			fmt.Fprint(w, `{"jobs":[`)
			for n := range records {
				fmt.Fprintf(w, "{\"name\":\"%d%s\",\"gpus\":1,\"gpuMilli\":500}%s\n", n, long, strings.Repeat(",", min(1, records-1-n)))
			}
			fmt.Fprint(w, "]}")
		}, ""},
		"lists.json": {func(w io.Writer) {
			fmt.Fprint(w, `{"items":[{"items":[`)
			times(w, jsonBytes/3-100, "{},")
			fmt.Fprint(w, "{}]}]}")
		}, "more than 500000 objects"},
		"deep.json": {func(w io.Writer) {
			times(w, 3000, `{"object":`)
			times(w, jsonBytes/2-100000, " ")
			fmt.Fprint(w, "null"+strings.Repeat("}", 3000))
		}, "an object of more than 4 MiB"},
		"large.json": {func(w io.Writer) {
			fmt.Fprint(w, `{"items":[`)
			for n := range jsonBytes/object - 1 {
				fmt.Fprintf(w, `%s{"kind":"Pod","metadata":{"name":"a%d"},"spec":{"containers":[`, strings.Repeat(",", min(1, n)), n)
				times(w, object/3-100, "{},")
				fmt.Fprint(w, "{}]}}")
			}
			fmt.Fprint(w, "]}")
		}, "more than 8000000 fields"},
		"many.json": {func(w io.Writer) { // as many as there may be
			fmt.Fprint(w, `{"items":[{"kind":"Pod"}`)
			for range 5 {
				fmt.Fprint(w, `,{"kind":"Pod","spec":{"containers":[{}`)
				times(w, 790_000, ",null")
				fmt.Fprint(w, "]}}")
				fmt.Fprint(w, `,{"kind":"Pod","spec":{"tolerations":[{}`)
				times(w, 790_000, ",null")
				fmt.Fprint(w, "]}}")
			}
			fmt.Fprint(w, "]}")
		}, ""},
		"watched.json": {func(w io.Writer) {
			long := strings.Repeat("a", jsonBytes/objects-100)
			for n := range objects {
				fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%d%s\"}}}\n", n, long)
			}
		}, ""},
		"parts.yaml": {func(w io.Writer) {
			fmt.Fprint(w, "items: [")
			times(w, 2_990_000, "a:          ,        \t")
			fmt.Fprint(w, "a]\n")
		}, "want an object"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			nodes, jobs := filepath.Join(directory, "nodes.csv"), filepath.Join(directory, name+".gz")
			if err := os.WriteFile(nodes, []byte("sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,8,T4\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Create(jobs)
			if err != nil {
				t.Fatal(err)
			}
			z, _ := gzip.NewWriterLevel(file, gzip.HuffmanOnly) // no more than eightfold
			w := bufio.NewWriterSize(z, 1<<16)
			c.write(w)
			if err := errors.Join(w.Flush(), z.Close(), file.Close()); err != nil {
				t.Fatal(err)
			}
			command := exec.Command(divvy(t), "plan", "--nodes", nodes, "--pods", jobs, "--seeds", "1")
			out, err := command.CombinedOutput()
			if planned := err == nil; planned != (c.says == "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v\n%.500s", err, out)
			}
			used := command.ProcessState.SysUsage().(*syscall.Rusage)
			t.Logf("%d MiB resident, %v of a processor", used.Maxrss>>10, command.ProcessState.UserTime())
			if most := used.Maxrss << 10; most > planMost {
				t.Errorf("%d MiB resident, at most %d", most>>20, planMost>>20)
			}
		})
	}
}
