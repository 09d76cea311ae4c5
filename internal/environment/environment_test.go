// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"slices"
	"testing"
)

func TestOver(t *testing.T) {
	share := Share{
		Front: "/front", Socket: "/share.sock", DriverDirectory: "/driver", Simulator: "/sim.sock",
		Entry: []string{"CUDA_MPS_PIPE_DIRECTORY=/mps"}, CardUUIDs: []string{"GPU-a", "GPU-b"}, Loads: true,
	}
	got := share.Over([]string{"HOME=/h", "LD_LIBRARY_PATH=/lib", "LD_PRELOAD=/x/libasan.so.8 /y/other.so", "CUDA_VISIBLE_DEVICES=7", "DIVVY_SOCKET=/old"})
	slices.Sort(got)
	want := []string{
		"ASAN_OPTIONS=verify_asan_link_order=0", "CUDA_MPS_PIPE_DIRECTORY=/mps", "CUDA_VISIBLE_DEVICES=0,1", "DIVVY_DRIVER_DIR=/driver",
		"DIVVY_SIMULATOR=/sim.sock", "DIVVY_SOCKET=/share.sock", "HOME=/h", "LD_LIBRARY_PATH=/front:/lib",
		"LD_PRELOAD=/x/libasan.so.8:/front/libcuda.so.1:/y/other.so",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%q, want\n%q", got, want)
	}
	share.Loads, share.Simulator = false, ""
	got = share.Over(nil)
	if !slices.Contains(got, "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b") || Get(got, "DIVVY_SIMULATOR") != "" {
		t.Errorf("a program without the front: %q", got)
	}
}
