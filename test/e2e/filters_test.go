// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	filterWidth, filterHeight = 320, 180
	filterFrames              = 10
)

// filterCase is one of ffmpeg's CUDA filters beside its twin on the CPU. The
// kernels come with libavfilter: nothing of them is ours.
type filterCase struct {
	name          string
	sources       []string // of lavfi
	card, cpu     string   // filter graphs over [0], [1]; the output is yuv420p or what format says
	width, height int      // of the output
	// alpha says that there is a fourth plane.
	alpha bool
	// flat, if not 0, looks only where the frame has one colour that many pixels
	// in each direction.
	flat int
	// most is the largest difference of a sample that is let pass, but for a
	// share odd of all samples; border are the samples at each edge that are not
	// looked at; why says why.
	most, border int
	odd          float64
	why          string
}

func source(kind string, width, height int) string {
	return fmt.Sprintf("%s=size=%dx%d:rate=10", kind, width, height)
}

var filterCases = []filterCase{
	{
		name:    "overlay",
		sources: []string{source("testsrc2", filterWidth, filterHeight), source("testsrc", 128, 72)},
		card:    "[0]format=yuv420p,hwupload_cuda[a];[1]format=yuv420p,hwupload_cuda[b];[a][b]overlay_cuda=x=42:y=20,hwdownload,format=yuv420p",
		cpu:     "[0]format=yuv420p[a];[1]format=yuv420p[b];[a][b]overlay=x=42:y=20:format=yuv420",
		width:   filterWidth, height: filterHeight,
	},
	{
		name:    "scale up, nearest",
		sources: []string{source("testsrc2", filterWidth, filterHeight)},
		card:    "format=yuv420p,hwupload_cuda,scale_cuda=w=640:h=360:interp_algo=nearest,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,scale=640:360:flags=neighbor",
		width:   640, height: 360,
	},
	{
		name:    "scale down, nearest",
		sources: []string{source("testsrc2", filterWidth, filterHeight)},
		card:    "format=yuv420p,hwupload_cuda,scale_cuda=w=160:h=90:interp_algo=nearest,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,scale=160:90:flags=neighbor",
		width:   160, height: 90,
	},
	{
		name:    "scale down, bilinear",
		sources: []string{source("testsrc2", filterWidth, filterHeight)},
		card:    "format=yuv420p,hwupload_cuda,scale_cuda=w=160:h=90:interp_algo=bilinear,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,scale=160:90:flags=area",
		width:   160, height: 90,
		most: 1, why: "both average four samples, and round at other places",
	},
	{
		name:    "scale up, bicubic",
		sources: []string{source("testsrc2", filterWidth, filterHeight)},
		card:    "format=yuv420p,hwupload_cuda,scale_cuda=w=640:h=360:interp_algo=bicubic:param=0.6,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,scale=640:360:flags=bicubic",
		width:   640, height: 360,
		most: 1, odd: 0.0015, why: "weights are rounded at other places, and what comes out above 255 wraps around on the card, where " +
			"the kernel keeps the low byte, and is cut off on the CPU",
	},
	{
		name:    "yadif, stripes",
		sources: []string{source("testsrc", filterWidth, filterHeight) + ",scale=1:180:flags=area,scale=320:180:flags=neighbor"},
		card:    "format=yuv420p,hwupload_cuda,yadif_cuda=mode=send_frame:parity=tff,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,yadif=mode=send_frame:parity=tff",
		width:   filterWidth, height: filterHeight,
		most: 1, why: "means of means, which the two round at other places",
	},
	{
		name:    "yadif",
		sources: []string{source("testsrc2", filterWidth, filterHeight)},
		card:    "format=yuv420p,hwupload_cuda,yadif_cuda=mode=send_frame:parity=tff,hwdownload,format=yuv420p",
		cpu:     "format=yuv420p,yadif=mode=send_frame:parity=tff",
		width:   filterWidth, height: filterHeight,
		most: 2, odd: 0.005, why: "where two directions fit an edge equally well, the two filters choose differently",
	},
	{
		name:    "chromakey",
		sources: []string{source("smptebars", filterWidth, filterHeight) + ",format=yuv420p"},
		card:    "format=yuv420p,hwupload_cuda,chromakey_cuda=color=0x10b410:similarity=0.1:blend=0.4,hwdownload,format=yuva420p",
		cpu:     "format=yuva420p,chromakey=color=0x10b410:similarity=0.1:blend=0.4",
		width:   filterWidth, height: filterHeight, alpha: true, flat: 4,
		why: "chromakey_cuda reads between samples (a linear filter at whole coordinates) and takes the mean of nine samples of " +
			"colour; its twin does neither, so they agree where the colour does not change",
	},
}

// filterRun has ffmpeg send its frames as they are.
func filterRun(t *testing.T, env []string, ffmpeg string, c filterCase, card bool) outcome {
	t.Helper()
	args := []string{"-nostdin", "-loglevel", "error", "-init_hw_device", "cuda=c", "-filter_hw_device", "c"}
	graph := c.card
	if !card {
		args, graph = args[:3], c.cpu
	}
	for _, s := range c.sources {
		args = append(args, "-f", "lavfi", "-i", s)
	}
	args = append(args, "-filter_complex", graph, "-frames:v", fmt.Sprint(filterFrames), "-f", "rawvideo", "-")
	return run(t, env, ffmpeg, args...)
}

// plane is one component of a frame in a raw video.
type plane struct {
	name          string
	width, height int
}

func (c filterCase) planes() []plane {
	planes := []plane{{"Y", c.width, c.height}, {"U", (c.width + 1) / 2, (c.height + 1) / 2}, {"V", (c.width + 1) / 2, (c.height + 1) / 2}}
	if c.alpha {
		planes = append(planes, plane{"A", c.width, c.height})
	}
	return planes
}

// compare returns the largest difference of two samples, where it is, and
// which share of the samples that it looked at differs by more than c.most.
func (c filterCase) compare(got, want string) (most int, where string, odd float64) {
	at, looked, over := 0, 0, 0
	for frame := 0; at < len(want); frame++ {
		begin := at
		for _, p := range c.planes() {
			for y := range p.height {
				for x := range p.width {
					d := int(got[at]) - int(want[at])
					at++
					if x < c.border || y < c.border || x >= p.width-c.border || y >= p.height-c.border ||
						c.flat > 0 && !c.isFlat(want[begin:], x*c.width/p.width, y*c.height/p.height) {
						continue
					}
					looked++
					if d = max(d, -d); d > c.most {
						over++
					}
					if d > most {
						most, where = d, fmt.Sprintf("frame %d, plane %s, %d,%d", frame, p.name, x, y)
					}
				}
			}
		}
	}
	if looked < at/2 {
		return most, "too few samples were looked at", 1
	}
	return most, where, float64(over) / float64(looked)
}

// isFlat says whether a frame has one colour around a place.
func (c filterCase) isFlat(frame string, x, y int) bool {
	if x < c.flat || y < c.flat || x >= c.width-c.flat-1 || y >= c.height-c.flat-1 {
		return false
	}
	planes := c.planes()
	u := planes[0].width * planes[0].height
	v := u + planes[1].width*planes[1].height
	colour := func(x, y int) [3]byte {
		i := y/2*planes[1].width + x/2
		return [3]byte{frame[y*c.width+x], frame[u+i], frame[v+i]}
	}
	for dy := -c.flat; dy <= c.flat; dy++ {
		for dx := -c.flat; dx <= c.flat; dx++ {
			if colour(x+dx, y+dy) != colour(x, y) {
				return false
			}
		}
	}
	return true
}

// ffmpeg's CUDA filters run on the simulated card, under a share, and give what
// their twins on the CPU give.
func TestFFmpegFilters(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	h := newHost(t, hostOptions{})
	share := h.share(t, "filters", 1<<30)
	for _, c := range filterCases {
		t.Run(c.name, func(t *testing.T) {
			got := filterRun(t, h.Environ(share.Socket), ffmpeg, c, true)
			want := filterRun(t, h.Bare(), ffmpeg, c, false)
			bytes := 0
			for _, p := range c.planes() {
				bytes += p.width * p.height * filterFrames
			}
			if got.code != 0 || want.code != 0 || len(got.stdout) != bytes || len(want.stdout) != bytes {
				t.Fatalf("on the card: code %d, %d bytes; on the CPU: code %d, %d bytes; want %d\n%s%s", got.code, len(got.stdout),
					want.code, len(want.stdout), bytes, tail(got.stderr, 1500), tail(want.stderr, 1500))
			}
			most, where, odd := c.compare(got.stdout, want.stdout)
			if odd > c.odd {
				t.Errorf("%.3f%% of samples differ by more than %d, the most by %d at %s; let pass are %.3f%% (%s)", odd*100, c.most, most,
					where, c.odd*100, c.why)
			}
		})
	}
}

// No CUDA filter of this ffmpeg is left out; thumbnail_cuda has a test of its own.
func TestFFmpegFiltersAreAll(t *testing.T) {
	t.Parallel()
	got := run(t, os.Environ(), needProgram(t, "ffmpeg"), "-hide_banner", "-filters")
	names := regexp.MustCompile(`(?m)^ \S+ +(\w+_cuda) `).FindAllStringSubmatch(got.stdout, -1)
	if got.code != 0 || len(names) == 0 {
		t.Fatalf("code %d, no CUDA filters in %s", got.code, tail(got.stdout, 500))
	}
	for _, name := range names {
		tested := name[1] == "thumbnail_cuda" || slices.ContainsFunc(filterCases, func(c filterCase) bool { return strings.Contains(c.card, name[1]) })
		if !tested {
			t.Errorf("%s is not tested", name[1])
		}
	}
}

// The overlay by checksums of frames, as a user would compare.
func TestFFmpegOverlayChecksums(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	h := newHost(t, hostOptions{})
	share := h.share(t, "overlay", 1<<30)
	c := filterCases[0]
	sums := func(env []string, card bool) string {
		args := []string{"-nostdin", "-loglevel", "error"}
		graph := c.cpu
		if card {
			args, graph = append(args, "-init_hw_device", "cuda=c", "-filter_hw_device", "c"), c.card
		}
		args = append(args, "-f", "lavfi", "-i", c.sources[0], "-f", "lavfi", "-i", c.sources[1], "-t", "2",
			"-filter_complex", graph, "-f", "framemd5", "-")
		got := run(t, env, ffmpeg, args...)
		if got.code != 0 || strings.Count(frames(got.stdout), "\n") != 20 {
			t.Errorf("code %d, %d frames\n%s", got.code, strings.Count(frames(got.stdout), "\n"), tail(got.stderr, 1500))
		}
		return frames(got.stdout)
	}
	if sums(h.Environ(share.Socket), true) != sums(h.Bare(), false) {
		t.Error("overlay_cuda and overlay give different frames")
	}
}

// thumbnail_cuda chooses a frame by histograms that the card counts. Its twin
// looks at other components, so the sequence is one where the choice is clear:
// of ten frames, the last eight are the same.
func TestFFmpegThumbnail(t *testing.T) {
	t.Parallel()
	ffmpeg := needProgram(t, "ffmpeg")
	h := newHost(t, hostOptions{})
	share := h.share(t, "thumbnail", 1<<30)
	const scene = "color=red:size=320x180:rate=10:duration=0.2[x];smptebars=size=320x180:rate=10:duration=0.8[y];[x][y]concat,format=yuv420p"
	thumbnail := func(env []string, filter string, more ...string) string {
		args := append([]string{"-nostdin", "-loglevel", "error"}, more...)
		got := run(t, env, ffmpeg, append(args, "-filter_complex", scene+filter, "-f", "framemd5", "-")...)
		var sums []string
		for line := range strings.Lines(frames(got.stdout)) {
			columns := strings.Split(line, ",")
			sums = append(sums, strings.TrimSpace(columns[len(columns)-1]))
		}
		if got.code != 0 || len(sums) == 0 {
			t.Fatalf("%s: code %d, %d frames\n%s", filter, got.code, len(sums), tail(got.stderr, 1500))
		}
		return strings.Join(sums, " ")
	}
	got := thumbnail(h.Environ(share.Socket), ",hwupload_cuda,thumbnail_cuda=n=10,hwdownload,format=yuv420p", "-init_hw_device", "cuda=c",
		"-filter_hw_device", "c")
	all := strings.Fields(thumbnail(h.Bare(), ""))
	if len(all) != 10 || all[0] == all[2] {
		t.Fatalf("frames %v", all)
	}
	if want := thumbnail(h.Bare(), ",thumbnail=n=10"); got != want {
		t.Errorf("it chose %s, the CPU's %s, of %v", got, want, all)
	}
}

const numbaKernels = `
import sys
from ctypes import c_uint32, c_uint64
import numpy
from numba import cuda
from numba.cuda.cudadrv import driver
context = cuda.current_context()
module = context.create_module_ptx(open(sys.argv[1]).read())
function = module.get_function("vectoradd")
count = 100003
random = numpy.random.default_rng(3)
a = random.random(count, dtype=numpy.float32)
b = random.random(count, dtype=numpy.float32)
da, db, dc = cuda.to_device(a), cuda.to_device(b), cuda.device_array(count, dtype=numpy.float32)
arguments = [c_uint64(x.device_ctypes_pointer.value) for x in (da, db, dc)] + [c_uint32(count)]
driver.launch_kernel(function.handle, (count + 127) // 128, 1, 1, 128, 1, 1, 0, 0, arguments)
context.synchronize()
print("wrong", int((dc.copy_to_host() != a + b).sum()))
`

// numba's driver API loads one of our modules, launches it and reads back.
func TestNumbaRunsPTX(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	share := h.share(t, "numba-ptx", 512*mib)
	got := run(t, h.Environ(share.Socket), "/usr/bin/python3", "-c", numbaKernels,
		filepath.Join(root(t), "examples", "vectoradd", "vectoradd.ptx"))
	if got.code != 0 || got.stdout != "wrong 0\n" {
		t.Errorf("code %d, %q\n%s", got.code, got.stdout, tail(got.stderr, 2000))
	}
}
