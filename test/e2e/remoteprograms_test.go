// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// ffmpeg's filters, with the same frames in the same memory, and CUDA's own error below it.
func TestRemoteFFmpeg(t *testing.T) {
	t.Parallel()
	newServed(t, hostOptions{}).ffmpeg(t)
}

func (s *served) ffmpeg(t *testing.T) {
	t.Helper()
	ffmpeg := needProgram(t, "ffmpeg")
	want := run(t, s.Unheld(), ffmpeg, ffmpegArgs(false)...)
	for _, c := range []struct {
		quota string
		fits  bool
	}{{"2GiB", true}, {"130MiB", true}, {"129MiB", false}} {
		got := s.run(t, []string{"--mem", c.quota}, append([]string{ffmpeg}, ffmpegArgs(true)...)...)
		if same := frames(got.stdout) == frames(want.stdout); c.fits != (got.code == 0) || c.fits != same {
			t.Errorf("--mem %s: code %d, frames equal: %v; should fit: %v\n%s", c.quota, got.code, same, c.fits, tail(got.stderr, 1500))
		}
		if !c.fits && !strings.Contains(got.stderr, "out of memory") && !strings.Contains(got.stderr, "OUT_OF_MEMORY") {
			t.Errorf("--mem %s: no out-of-memory error\n%s", c.quota, tail(got.stderr, 1500))
		}
	}
}

func TestRemoteNumba(t *testing.T) {
	t.Parallel()
	newServed(t, hostOptions{}).numba(t)
}

func (s *served) numba(t *testing.T) {
	t.Helper()
	const quota = 512 * mib
	got := s.run(t, []string{"--mem", mem(quota)}, "/usr/bin/python3", "-c", numbaProgram, fmt.Sprint(quota))
	want := fmt.Sprintf("total %d free %d\nrefused %d\n", quota, quota-contextBytes-8*mib, outOfMemory)
	if got.code != 0 || got.stdout != want {
		t.Errorf("code %d, %q, want %q\n%s", got.code, got.stdout, want, tail(got.stderr, 1500))
	}
}

// example runs one, which must come to its checksum.
func (s *served) example(t testing.TB, name string, want map[string]string, more ...string) {
	t.Helper()
	r, err := readExample(s.run(t, []string{"--mem", "2GiB"}, append([]string{built(t, "lib", "divvy", "examples", name)}, exampleArgs(name, more...)...)...), name)
	if err != nil {
		t.Error(err)
	} else if r.Checksum != want[name] {
		t.Errorf("%s%q: checksum %s, beside the GPU %s", name, more, r.Checksum, want[name])
	}
}

// corpus runs each text at -O3 of the examples that are wanted.
func (s *served) corpus(t *testing.T, want map[string]string) {
	t.Helper()
	ran := map[string]bool{}
	for _, c := range corpus(t) {
		if _, wanted := want[c.example]; !wanted || c.level != "O3" || ran[c.file] {
			continue
		}
		ran[c.file] = true
		path := filepath.Join(s.directory, c.file)
		c.write(t, path)
		s.example(t, c.example, want, "--ptx", path)
	}
	if len(ran) < 2*len(want) {
		t.Errorf("%d texts of %d examples", len(ran), len(want))
	}
}

// What optimising compilers make of the examples' kernels computes the same, too.
func TestRemoteCorpus(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	s.corpus(t, checksums(t, s.host))
}

// A program finds itself after a session as it was before, and its interposers go on by RTLD_NEXT.
func TestRemoteLeavesNothingChanged(t *testing.T) {
	t.Parallel()
	const bytes = 512 * mib
	s := newServed(t, hostOptions{})
	manners := built(t, "build", "test", "manners")
	for _, c := range []struct {
		mem  string
		over int
	}{{"256MiB", outOfMemory}, {"2GiB", 0}} {
		flags := []string{"--mem", c.mem}
		want := fmt.Sprintf("over %d\ndone\n", c.over)
		if ended := s.run(t, flags, manners, fmt.Sprint(bytes)); ended.stdout != want || ended.code != 0 {
			t.Errorf("--mem %s: %+v", c.mem, ended)
		}
		ended := s.run(t, flags, "sh", "-c", `LD_PRELOAD="$1:$LD_PRELOAD" exec "$2" "$3"`, "sh", built(t, "build", "test", "interposer.so"), manners, fmt.Sprint(bytes))
		if !strings.Contains(ended.stderr, fmt.Sprintf("interposed %d\n", bytes)) || !strings.Contains(ended.stdout, fmt.Sprintf("over %d\n", c.over)) {
			t.Errorf("interposed, --mem %s: %+v", c.mem, ended)
		}
	}
}
