// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var exampleNames = []string{"vectoradd", "matmul", "reduction", "histogram", "nbody", "texture", "mlp"}

// exampleResult is what an example prints with --json.
type exampleResult struct {
	Schema, Example, Checksum string
	Values, Wrong             uint64
	MaxRelativeError          float64
	Correct                   bool
}

// exampleArgs are the arguments of an example that make it short and talk JSON.
func exampleArgs(name string, more ...string) []string {
	args := []string{"--json"}
	if name == "mlp" {
		args = append(args, "--check", "--size", "200")
	}
	return append(args, more...)
}

// runExample runs one and reads its result; err says what is wrong with it.
func runExample(t testing.TB, env []string, name string, more ...string) (exampleResult, error) {
	t.Helper()
	return readExample(run(t, env, built(t, "lib", "divvy", "examples", name), exampleArgs(name, more...)...), name)
}

func readExample(got outcome, name string) (exampleResult, error) {
	var r exampleResult
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		return r, fmt.Errorf("%s: code %d, %q: %s", name, got.code, tail(got.stdout, 200), tail(got.stderr, 1500))
	}
	if r.Schema != "divvy.example/v1" || r.Example != name || r.Values == 0 || r.Correct != (r.Wrong == 0) || r.Correct != (got.code == 0) {
		return r, fmt.Errorf("%s: code %d, %+v", name, got.code, r)
	}
	if !r.Correct {
		return r, fmt.Errorf("%s: %d of %d are wrong, error up to %g", name, r.Wrong, r.Values, r.MaxRelativeError)
	}
	return r, nil
}

// checksums of the examples as the build made them, without a front.
func checksums(t testing.TB, h *host) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range exampleNames {
		r, err := runExample(t, h.Unheld(), name)
		if err != nil {
			t.Error(err)
		}
		found[name] = r.Checksum
	}
	return found
}

// Every example computes what the CPU computes, on each driver generation,
// without Divvy and under a share; its result is the same bit by bit.
func TestExamples(t *testing.T) {
	t.Parallel()
	sums := map[string]string{}
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			h := newHost(t, hostOptions{generation: g})
			alone := checksums(t, h)
			share := h.share(t, "examples", 2<<30)
			for _, name := range exampleNames {
				r, err := runExample(t, h.Environ(share.Socket), name)
				if err != nil {
					t.Error(err)
				}
				if sums[name] == "" {
					sums[name] = r.Checksum
				}
				if r.Checksum != alone[name] || r.Checksum != sums[name] {
					t.Errorf("%s: checksum %s, without Divvy %s, before %s", name, r.Checksum, alone[name], sums[name])
				}
			}
		})
	}
}

// Models at both ends of compute capabilities: kernels for older ones compute on both, with
// the result of all others; those for one in between are refused by the older model.
func TestExamplesOldAndNew(t *testing.T) {
	t.Parallel()
	other := newHost(t, hostOptions{})
	want, err := runExample(t, other.Unheld(), "vectoradd")
	if err != nil {
		t.Fatal(err)
	}
	did := other.instructions(t)
	if did < want.Values {
		t.Errorf("%d sums by %d instructions", want.Values, did)
	}
	for _, c := range []struct {
		card       string
		generation generation
		name       string
		newer      bool // than sm_80
	}{
		{"P40", generations[1], "Tesla P40", false},
		{"RTX5090", generations[2], "NVIDIA GeForce RTX 5090", true},
	} {
		t.Run(c.card, func(t *testing.T) {
			h := newHost(t, hostOptions{cards: c.card, generation: c.generation})
			share := h.share(t, "examples", 2<<30)
			if !strings.HasPrefix(share.CardName, c.name) {
				t.Errorf("the GPU is %q", share.CardName)
			}
			if r, err := runExample(t, h.Environ(share.Socket), "vectoradd"); err != nil || r.Checksum != want.Checksum {
				t.Errorf("%v, checksum %s, of others %s", err, r.Checksum, want.Checksum)
			}
			if again := h.instructions(t); again != did {
				t.Errorf("%d instructions, on the other %d", again, did)
			}
			path := filepath.Join(h.directory, "kernels.ptx")
			compilation{card: "sm_80", version: "7.0", file: "vectoradd-O3-b9d5de22.ptx"}.write(t, path)
			r, err := runExample(t, h.Environ(share.Socket), "vectoradd", "--ptx", path)
			computed := err == nil && r.Checksum == want.Checksum
			refused := err != nil && strings.Contains(err.Error(), "PTX for sm_80 cannot be run by this card, which is sm_61")
			if computed != c.newer || refused == c.newer {
				t.Errorf("kernels for sm_80: %v, checksum %s", err, r.Checksum)
			}
		})
	}
}

// instructions are what the threads of all kernels so far did.
func (h *host) instructions(t testing.TB) (sum uint64) {
	t.Helper()
	times, err := h.truth(t).CardTime(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range times {
		sum += s.Instructions
	}
	return sum
}

// Four shares compute at once, each all examples over and over; no result
// differs from one alone.
func TestExamplesFourShares(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	alone := checksums(t, h)
	var running sync.WaitGroup
	for i := range 4 {
		share := h.share(t, fmt.Sprintf("tenant-%d", i), 2<<30)
		env := h.Environ(share.Socket)
		// each begins with another, so that different ones meet
		order := slices.Concat(exampleNames[i:], exampleNames[:i])
		running.Go(func() {
			for _, name := range order {
				command := exec.CommandContext(t.Context(), built(t, "lib", "divvy", "examples", name), exampleArgs(name)...)
				r, err := readExample(finish(t, command, env), name)
				if err != nil || r.Checksum != alone[name] {
					t.Errorf("share %d, %s: %v, checksum %s, alone %s", i, name, err, r.Checksum, alone[name])
				}
			}
		})
	}
	running.Wait()
}

// A kernel that computes something else is found out: the control of all that
// examples say about results.
func TestExamplesFindWrongResults(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	for _, c := range []struct{ name, right, wrong string }{
		{"vectoradd", "add.rn.f32", "sub.rn.f32"},
		{"matmul", "fma.rn.f32", "fma.rz.f32"},
		{"reduction", "shfl.sync.down.b32", "shfl.sync.up.b32"},
		{"histogram", "atom.shared.add.u32", "atom.shared.max.u32"},
	} {
		ptx, err := os.ReadFile(filepath.Join(root(t), "examples", c.name, c.name+".ptx"))
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.ReplaceAll(string(ptx), c.right, c.wrong)
		if changed == string(ptx) {
			t.Errorf("%s.ptx has no %s", c.name, c.right)
		}
		path := filepath.Join(h.directory, c.name+".ptx")
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		good, err := runExample(t, h.Unheld(), c.name)
		if err != nil {
			t.Error(err)
		}
		bad, err := runExample(t, h.Unheld(), c.name, "--ptx", path)
		// rounding to zero stays within the tolerance: the checksum tells
		if bad.Values != good.Values || bad.Checksum == good.Checksum || (err == nil) != (c.name == "matmul") {
			t.Errorf("%s with %s instead of %s: %v, %+v", c.name, c.wrong, c.right, err, bad)
		}
	}
}

// compilation is one of an example's kernels, by a compiler at a level for a card. Those of several cards can have
// the same text.
type compilation struct{ example, compiler, level, card, version, file string }

func corpus(t testing.TB) (all []compilation) {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(root(t), "test", "corpus", "corpus.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSpace(line), "\t")
		if len(columns) != 6 {
			t.Fatalf("corpus.tsv: %q", line)
		}
		all = append(all, compilation{columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]})
	}
	// 7 examples, 2 levels, 4 cards of clang-14 and 6 of clang-16
	if len(all) != 7*2*(4+6) {
		t.Errorf("%d compilations, want %d", len(all), 7*2*(4+6))
	}
	return all
}

// write makes a file of it.
func (c compilation) write(t testing.TB, path string) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(root(t), "test", "corpus", c.file))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, ".version %s\n.target %s\n%s", c.version, c.card, body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every compilation of the examples' kernels gives the same results.
func TestCorpus(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	want := checksums(t, h)
	ran := 0
	bodies := map[string]int{}
	for _, c := range corpus(t) {
		bodies[c.file]++
		if testing.Short() && bodies[c.file] != 1+(len(bodies)+len(bodies)/4)%4 {
			continue // the same text for another card
		}
		ran++
		path := filepath.Join(h.directory, "kernels.ptx")
		c.write(t, path)
		r, err := runExample(t, h.Unheld(), c.example, "--ptx", path)
		if err != nil || r.Checksum != want[c.example] {
			t.Errorf("%+v: %v, checksum %s, want %s", c, err, r.Checksum, want[c.example])
		}
	}
	if ran < len(bodies) {
		t.Errorf("%d of %d texts ran", ran, len(bodies))
	}
}

// The interpreter's slower engines give the same results as the one that this
// processor gets; what the fast one runs is all of the corpus.
func TestCorpusEngines(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	want := checksums(t, h)
	for _, engine := range []string{"avx2", "plain"} {
		env := append(h.Unheld(), "DIVVY_PTX_ENGINE="+engine)
		for _, name := range exampleNames {
			files, err := filepath.Glob(filepath.Join(root(t), "test", "corpus", name+"-O*.ptx"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%s: %d files, %v", name, len(files), err)
			}
			for _, file := range files {
				body, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(h.directory, "kernels.ptx")
				if err := os.WriteFile(path, append([]byte(".version 7.8\n.target sm_80\n"), body...), 0o600); err != nil {
					t.Fatal(err)
				}
				r, err := runExample(t, env, name, "--ptx", path)
				if err != nil || r.Checksum != want[name] {
					t.Errorf("%s, %s: %v, checksum %s, want %s", engine, file, err, r.Checksum, want[name])
				}
			}
		}
	}
}

// The inference server answers as its README says.
func TestInferenceServer(t *testing.T) {
	t.Parallel()
	directory, err := os.MkdirTemp("/tmp", "dv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	inference(t, cliEnv(t, directory), "--simulate")
}

// inference starts the server under divvy run, and asks it much at once.
func inference(t *testing.T, env []string, flags ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, divvy(t), slices.Concat([]string{"run", "--mem", "2GiB", "--cores", "30"}, flags,
		[]string{"--", built(t, "lib", "divvy", "examples", "mlp"), "--listen", "127.0.0.1:0"})...)
	command.Env = env
	command.Stderr = os.Stderr
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = command.Wait()
	}()
	line, err := bufio.NewReader(output).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		t.Fatalf("it said %q: %v", line, err)
	}
	seven, err := os.ReadFile(filepath.Join(root(t), "examples", "mlp", "seven.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 20 {
				var reply struct {
					Digit         int
					AgreesWithCPU bool
					Probabilities []float64
				}
				if err := post(address+"/classify", string(seven), &reply); err != nil {
					t.Error(err)
					return
				}
				if reply.Digit != 7 || !reply.AgreesWithCPU || len(reply.Probabilities) != 10 || reply.Probabilities[7] < 0.9 {
					t.Errorf("%+v", reply)
					return
				}
			}
		})
	}
	asking.Wait()
	if err := post(address+"/classify", "no digit", nil); err == nil {
		t.Error("nonsense was classified")
	}
	response, err := http.Get(address + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var stats struct{ Answered, Disagreed uint64 }
	if err := json.NewDecoder(response.Body).Decode(&stats); err != nil || stats.Answered != 160 || stats.Disagreed != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}

func post(address, body string, reply any) error {
	response, err := http.Post(address, "text/plain", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return json.Unmarshal(text, reply)
}
