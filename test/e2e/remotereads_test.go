// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Copies that are asked for before the program does, and textures that are kept, are what the
// calls would bring; what is refused beside the GPU is refused.
func TestRemoteReads(t *testing.T) {
	t.Parallel()
	s := newServed(t, hostOptions{})
	reads := built(t, "build", "test", "reads")
	want := run(t, s.Unheld(), reads, "1000")
	ended := s.run(t, []string{"--mem", "2GiB"}, reads, "1000")
	if want.code != 0 || ended.code != 0 || ended.stdout != want.stdout {
		t.Errorf("codes %d and %d\n%s\nwant\n%s%s", ended.code, want.code, tail(ended.stdout, 2000), want.stdout, tail(ended.stderr, 2000))
	}
}

// TestRemoteRoundTrips counts for what a program waits: what comes again for each frame, and all
// of a small one.
func TestRemoteRoundTrips(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	s := newServed(t, hostOptions{})
	trips := func(program ...string) uint64 {
		status := slices.Concat([]string{divvy(t), "remote", "status", "--json"}, s.remote)
		ended := s.run(t, []string{"--mem", "2GiB"}, append([]string{"sh", "-c", `"$@" >&2 && exec ` + strings.Join(status, " "), "sh"}, program...)...)
		var is struct {
			Runs []struct{ Calls, RoundTrips uint64 }
		}
		if err := json.Unmarshal([]byte(ended.stdout), &is); ended.code != 0 || err != nil || len(is.Runs) != 1 {
			t.Fatalf("%v: code %d, %v\n%s", program, ended.code, err, tail(ended.stderr, 2000))
		}
		if r := is.Runs[0]; r.RoundTrips == 0 || r.Calls < r.RoundTrips {
			t.Errorf("%+v", r)
		}
		return is.Runs[0].RoundTrips
	}
	frames := func(n string) uint64 {
		return trips(ffmpeg, "-nostdin", "-loglevel", "error", "-init_hw_device", "cuda=c", "-filter_hw_device", "c", "-f", "lavfi", "-i",
			"testsrc2=size=320x240:rate=25", "-frames:v", n, "-vf",
			"format=yuv420p,hwupload_cuda,yadif_cuda,scale_cuda=160:120,hwdownload,format=yuv420p", "-f", "null", "-")
	}
	few, many := frames("5"), frames("25")
	if each := float64(many-few) / 20; each > 2 {
		t.Errorf("%.2f round trips a frame", each)
	} else {
		t.Logf("%.2f round trips a frame, textures included", each)
	}
	if n := trips(built(t, "lib", "divvy", "examples", "vectoradd")); n > 12 {
		t.Errorf("vectoradd: %d round trips", n)
	}
}
