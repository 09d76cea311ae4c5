// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// ffmpegArgs moves four seconds of video through the card and back, or, without
// the card, leaves them where they are.
func ffmpegArgs(card bool) []string {
	filter := "format=nv12"
	args := []string{"-nostdin", "-loglevel", "verbose"}
	if card {
		args = append(args, "-init_hw_device", "cuda=c", "-filter_hw_device", "c")
		filter = "format=nv12,hwupload_cuda,hwdownload,format=nv12"
	}
	return append(args, "-f", "lavfi", "-i", "testsrc2=size=1280x720:rate=25", "-t", "4", "-vf", filter, "-f", "framemd5", "-")
}

// frames are the checksums of an output of ffmpeg.
func frames(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func needProgram(t *testing.T, path string) string {
	t.Helper()
	found, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("%v: make test installs it", err)
	}
	return found
}

// ffmpeg makes two contexts of 64 MiB and one frame of 1.6 MiB.
func TestFFmpeg(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	h := newHost(t, hostOptions{})
	want := run(t, h.Bare(), ffmpeg, ffmpegArgs(false)...)
	if want.code != 0 || strings.Count(frames(want.stdout), "\n") != 100 {
		t.Fatalf("without the card: code %d, %d frames", want.code, strings.Count(frames(want.stdout), "\n"))
	}
	oom := regexp.MustCompile(`CUDA_ERROR_OUT_OF_MEMORY|out of memory`)
	for _, c := range []struct {
		quota uint64
		fits  bool
		call  string // that is refused
	}{
		{2048 * mib, true, ""},
		{130 * mib, true, ""},
		{129 * mib, false, "cuMemAlloc"},
		{65 * mib, false, "cuCtxCreate"},
	} {
		t.Run(fmt.Sprintf("%dMiB", c.quota/mib), func(t *testing.T) {
			h.resetPeak(t)
			name := fmt.Sprintf("ffmpeg-%d", c.quota/mib)
			share := h.share(t, name, c.quota)
			got := run(t, h.Environ(share.Socket), ffmpeg, ffmpegArgs(true)...)
			if peak := h.peak(t); peak > c.quota {
				t.Errorf("the driver saw %d bytes in use, quota %d", peak, c.quota)
			}
			if c.fits {
				if got.code != 0 || frames(got.stdout) != frames(want.stdout) {
					t.Errorf("code %d, frames equal: %v\n%s", got.code, frames(got.stdout) == frames(want.stdout), tail(got.stderr, 1500))
				}
				if denied := h.events(t, "denied", name); len(denied) != 0 {
					t.Errorf("refusals though it fits: %+v", denied)
				}
				return
			}
			if got.code == 0 || !oom.MatchString(got.stderr) {
				t.Errorf("code %d, want CUDA's out-of-memory error\n%s", got.code, tail(got.stderr, 1500))
			}
			if last := h.event(t, "denied", name); !strings.Contains(last.Message, c.call) || last.Bytes == 0 {
				t.Errorf("event %+v does not say that %s was refused", last, c.call)
			}
			if share := h.look(t, name); share.Denials == 0 {
				t.Error("the share counts no refusal")
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		h.resetPeak(t)
		got := run(t, h.Unheld(), ffmpeg, ffmpegArgs(true)...)
		if got.code != 0 || frames(got.stdout) != frames(want.stdout) {
			t.Errorf("code %d\n%s", got.code, tail(got.stderr, 1500))
		}
		if peak := h.peak(t); peak <= 129*mib {
			t.Errorf("the driver saw %d bytes in use: no quota above would have been passed", peak)
		}
	})
}

// The same by the command line, with nothing set up before.
func TestFFmpegUnderDivvyRun(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	directory, err := os.MkdirTemp("/tmp", "dv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	env := cliEnv(t, directory)
	want := run(t, env, ffmpeg, ffmpegArgs(false)...)
	for _, c := range []struct {
		quota string
		fits  bool
	}{{"2GiB", true}, {"130MiB", true}, {"129MiB", false}, {"65MiB", false}} {
		args := append([]string{"run", "--simulate", "--mem", c.quota, "--", ffmpeg}, ffmpegArgs(true)...)
		got := run(t, env, divvy(t), args...)
		if same := frames(got.stdout) == frames(want.stdout); c.fits != (got.code == 0) || c.fits != same {
			t.Errorf("--mem %s: code %d, frames equal: %v; should fit: %v\n%s", c.quota, got.code, same, c.fits, tail(got.stderr, 1500))
		}
		if !c.fits && !strings.Contains(got.stderr, "out of memory") && !strings.Contains(got.stderr, "OUT_OF_MEMORY") {
			t.Errorf("--mem %s: no out-of-memory error\n%s", c.quota, tail(got.stderr, 1500))
		}
	}
}

const numbaProgram = `
import sys
import numpy
from numba import cuda
out = numpy.arange(1 << 20, dtype=numpy.float64)
device = cuda.to_device(out)
back = device.copy_to_host()
assert (out == back).all(), "the data changed"
free, total = cuda.current_context().get_memory_info()
print("total", total, "free", free)
more = int(sys.argv[1])
if more:
    try:
        cuda.device_array(more, dtype=numpy.uint8)
        print("granted")
    except cuda.cudadrv.driver.CudaAPIError as error:
        print("refused", error.code)
`

func TestNumba(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "numba", quota)
	h.resetPeak(t)
	got := run(t, h.Environ(share.Socket), "/usr/bin/python3", "-c", numbaProgram, fmt.Sprint(quota))
	want := fmt.Sprintf("total %d free %d\nrefused %d\n", quota, quota-contextBytes-8*mib, outOfMemory)
	if got.code != 0 || got.stdout != want {
		t.Errorf("code %d, %q, want %q\n%s", got.code, got.stdout, want, tail(got.stderr, 1500))
	}
	if peak := h.peak(t); peak > quota {
		t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
	}
	h.resetPeak(t)
	bare := run(t, h.Unheld(), "/usr/bin/python3", "-c", numbaProgram, fmt.Sprint(quota))
	if bare.code != 0 || !strings.HasSuffix(bare.stdout, "granted\n") {
		t.Errorf("control without the front: code %d, %q\n%s", bare.code, bare.stdout, tail(bare.stderr, 1500))
	}
	if peak := h.peak(t); peak <= quota {
		t.Errorf("control: the driver saw only %d bytes in use", peak)
	}
}
