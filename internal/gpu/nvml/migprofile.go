// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// suffixes is what the names of profiles end in, by NVML's number of them,
// NVML_GPU_INSTANCE_PROFILE_*.
var suffixes = [nvml.GPU_INSTANCE_PROFILE_COUNT]string{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx", nvml.GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx", nvml.GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_NO_ME: "-me", nvml.GPU_INSTANCE_PROFILE_2_SLICE_NO_ME: "-me",
	nvml.GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all", nvml.GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}

// told is what a driver said of a card's profiles in one of its modes: on Ampere
// it says nothing while the mode is off.
type told struct {
	on       bool
	profiles []mig.Profile
}

// profilesLocked asks a card's driver which profiles there are and where
// instances of them may start; the answer is kept, it is the model's.
func (s *Source) profilesLocked(uuid string, device nvml.Device, on bool) ([]mig.Profile, error) {
	if known, ok := s.profiles[uuid]; ok && known.on == on {
		return known.profiles, nil
	}
	whole, result := device.GetMemoryInfo()
	if result != nvml.SUCCESS {
		return nil, failure("memory", result)
	}
	var list []mig.Profile
	for kind := range suffixes {
		info, result := device.GetGpuInstanceProfileInfo(kind)
		if result != nvml.SUCCESS {
			continue // the card has no such profile
		}
		placements, result := device.GetGpuInstancePossiblePlacements(&info)
		if result != nvml.SUCCESS {
			return nil, failure(fmt.Sprintf("placements of profile %d", info.Id), result)
		}
		f := mig.Profile{
			Name: s.profileName(device, kind, info, whole.Total), ID: int(info.Id), NVML: kind, Slices: int(info.SliceCount),
			MemoryMiB: int(info.MemorySizeMB), Most: int(info.InstanceCount), Multiprocessors: int(info.MultiprocessorCount),
			Copy: int(info.CopyEngineCount), Engines: mig.Engines{
				Dec: int(info.DecoderCount), Enc: int(info.EncoderCount), JPEG: int(info.JpegCount), OFA: int(info.OfaCount),
			},
		}
		for _, p := range placements {
			f.Size, f.Starts = int(p.Size), append(f.Starts, int(p.Start))
		}
		slices.Sort(f.Starts)
		list = append(list, f)
	}
	if s.profiles == nil {
		s.profiles = map[string]told{}
	}
	s.profiles[uuid] = told{on, list}
	return list, nil
}

// profileName is what the driver calls a profile; one that does not tell gets the
// name that nvidia-smi makes up: the slices, and the card's gigabytes by the
// eighths that the profile's memory fills.
func (s *Source) profileName(device nvml.Device, kind int, info nvml.GpuInstanceProfileInfo, cardBytes uint64) string {
	if s.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		if named, result := device.GetGpuInstanceProfileInfoV(kind).V2(); result == nvml.SUCCESS {
			if name := strings.TrimPrefix(text(named.Name[:]), "MIG "); name != "" {
				return name
			}
		}
	}
	const gib, parts = 1 << 30, 8
	eighths := math.Ceil(float64(info.MemorySizeMB<<20) * parts / float64(max(cardBytes, 1)))
	gigabytes := math.Round(eighths / parts * math.Ceil(float64(cardBytes)/gib))
	return fmt.Sprintf("%dg.%dgb%s", info.SliceCount, int(gigabytes), suffixes[kind])
}

// text is what stands before the first zero.
func text[T ~int8 | ~uint8](raw []T) string {
	var b bytes.Buffer
	for _, c := range raw {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
