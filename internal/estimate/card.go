// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"fmt"
	"strings"
)

// Datasheet is a kind of GPU as its maker describes it. Rates are dense.
type Datasheet struct {
	Name         string  `yaml:"name" json:"name"`
	Vendor       string  `yaml:"vendor" json:"vendor"`
	Architecture string  `yaml:"architecture" json:"architecture"`
	MemoryGiB    float64 `yaml:"memory_gb_label" json:"memoryGiB"` // labels count in 2^30
	VisibleGiB   float64 `yaml:"memory_gib_visible" json:"visibleGiB,omitempty"`
	MemoryType   string  `yaml:"memory_type" json:"memoryType"`
	Bandwidth    float64 `yaml:"bandwidth_gb_s" json:"bandwidthGBs"`
	BF16         float64 `yaml:"bf16_dense_tflops" json:"bf16Tflops,omitempty"`
	FP16         float64 `yaml:"fp16_dense_tflops" json:"fp16Tflops,omitempty"`
	FP8          float64 `yaml:"fp8_dense_tflops" json:"fp8Tflops,omitempty"`
	INT8         float64 `yaml:"int8_dense_tops" json:"int8Tops,omitempty"`
	FP4          float64 `yaml:"fp4_dense_tflops" json:"fp4Tflops,omitempty"`
	Watts        float64 `yaml:"tdp_w" json:"watts"`
	Link         Link    `yaml:"link" json:"link"`
	PCIe         string  `yaml:"pcie" json:"pcie,omitempty"`
	MIG          struct {
		Supported bool `yaml:"supported" json:"supported"`
		Instances int  `yaml:"max_instances" json:"maxInstances"`
	} `yaml:"mig" json:"mig"`
	Sources    []string `yaml:"sources" json:"sources"`
	Confidence string   `yaml:"confidence" json:"confidence"`
	Note       string   `yaml:"note" json:"note,omitempty"`
}

// Link is how cards of a machine reach each other beside PCIe.
type Link struct {
	Kind     string  `yaml:"kind" json:"kind"`
	Each     float64 `yaml:"gb_s_each_direction" json:"GBsEachDirection"`
	OnePeer  float64 `yaml:"gb_s_each_direction_one_peer" json:"GBsOnePeer,omitempty"`
	Topology string  `yaml:"topology" json:"topology"`
}

// CardsPerMachine is how many cards a machine has where nothing else is said.
const CardsPerMachine = 8

// domain is how many cards its link joins; 1: it has none.
func (c *Datasheet) domain() int {
	switch {
	case c.Link.Each == 0:
		return 1
	case strings.Contains(c.Link.Topology, "bridge between two"):
		return 2
	case strings.Contains(c.Link.Topology, "72-card"):
		return 72
	}
	return CardsPerMachine
}

// pcieGeneration is 3, 4 or 5; 4 where it was not found.
func (c *Datasheet) pcieGeneration() int {
	if len(c.PCIe) > 0 && c.PCIe[0] >= '3' && c.PCIe[0] <= '6' {
		return int(c.PCIe[0] - '0')
	}
	return 4
}

// pcie is a x16 slot each way in bytes per second: 16, 32, 64 GB/s.
func (c *Datasheet) pcie() float64 { return 16e9 * float64(int(1)<<(c.pcieGeneration()-3)) }

// network is one adapter a card: 100, 200, 400 Gbit/s, the generation that goes
// with its PCIe.
func (c *Datasheet) network() float64 { return 12.5e9 * float64(int(1)<<(c.pcieGeneration()-3)) }

// sparseOnly are figures that makers print with sparsity, by the dense one.
func (c *Datasheet) rate(k class) float64 {
	switch k {
	case class4:
		return c.FP4 * 1e12
	case class8:
		return c.FP8 * 1e12
	case class16:
		return max(c.BF16, c.FP16) * 1e12
	}
	// 32 bits go through the same units at half the rate (TF32) where there is
	// BF16 at all.
	return c.BF16 / 2 * 1e12
}

// Supports says why a card cannot work in a format.
func (c *Datasheet) Supports(f Format) error {
	if c.Architecture == "" {
		return nil
	}
	instead := "fp16"
	if c.BF16 > 0 {
		instead = "bf16"
	}
	switch {
	case f.Name == "bf16" && c.BF16 == 0:
		return invalidf("%s (%s) has no BF16: --precision fp16", c.Name, c.Architecture)
	case f.Name == "fp16" && c.FP16 == 0:
		return invalidf("%s (%s): no FP16 rate is known: --precision bf16", c.Name, c.Architecture)
	case f.class == class8 && c.FP8 == 0:
		return invalidf("%s (%s) has no FP8: --precision %s, or int8 for the weights alone", c.Name, c.Architecture, instead)
	case f.class == class4 && c.FP4 == 0:
		return invalidf("%s (%s) has no FP4: --precision int4 or nf4 for the weights alone", c.Name, c.Architecture)
	case c.rate(f.class) == 0:
		return invalidf("%s (%s): no rate for %s is known", c.Name, c.Architecture, f.Name)
	}
	return nil
}

// TFLOPSError says that a rate can only be one with sparsity, or none at all.
func (c *Datasheet) TFLOPSError(given float64, f Format) error {
	dense := c.rate(f.class) / 1e12
	switch {
	case !(given > 0 && given < 1e6):
		return invalidf("--tflops %g is no rate", given)
	case dense == 0 || given <= dense*1.1:
		return nil
	case given <= dense*2.2:
		return invalidf("--tflops %g: %s has %.4g dense TFLOP/s in %s; a figure of twice that counts zeros that sparsity leaves out", given, c.Name, dense, f.Name)
	}
	return invalidf("--tflops %g: %s has %.4g dense TFLOP/s in %s; figures that are higher are of a narrower format, with sparsity, or of several GPUs", given, c.Name, dense, f.Name)
}

// visible is the memory that a program finds, in bytes.
func (c *Datasheet) visible(k *Constants) Range {
	if c.VisibleGiB > 0 {
		return exactly(c.VisibleGiB * gib)
	}
	whole := c.MemoryGiB * gib
	if c.MemoryType == "GDDR6" && c.Vendor == "nvidia" {
		whole *= 15.0 / 16 // ECC
	}
	return k.visible().times(whole)
}

// Visible is the memory that a program finds, in bytes.
func (c *Datasheet) Visible(k *Constants) Range { return c.visible(k) }

// visibleOf says how that comes about.
type visibleOf struct {
	c *Datasheet
	k *Constants
}

func (v visibleOf) String() string {
	c, k := v.c, v.k
	switch {
	case c.VisibleGiB > 0:
		return fmt.Sprintf("%g GiB that the driver shows", c.VisibleGiB)
	case c.MemoryType == "GDDR6" && c.Vendor == "nvidia":
		return fmt.Sprintf("%g GiB x 15/16 for ECC x %.3g", c.MemoryGiB, k.visible().Mid)
	}
	return fmt.Sprintf("%g GiB x %.3g", c.MemoryGiB, k.visible().Mid)
}

const gib = 1 << 30
