// SPDX-License-Identifier: Apache-2.0

package gpu

// Reading is what a driver's own library tells of a card, beyond the files of
// the kernel.
type Reading struct {
	UUID        Fact[string]
	Name        Fact[string]
	MemoryBytes Fact[uint64]
	// MemoryShared says that it is the host's.
	MemoryShared bool
	MIG          Fact[bool] // MIG mode is on
	Instances    []Partition
	Use          Use
	Condition    Condition
	Simulated    bool
}
