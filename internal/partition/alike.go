// SPDX-License-Identifier: Apache-2.0

package partition

// asking is a card seen with the questions of another state of it: what that one
// does not know of may be anything, such as what a driver that comes back shows.
func (c Card) asking(o Card) Card {
	if o.MIGUnknown && !c.MIG {
		c.MIGUnknown = true
	}
	if o.AMD == nil {
		c.AMD = nil
	}
	switch {
	case o.VGPU == nil:
		c.VGPU = nil
	case c.VGPU != nil:
		c.VGPU = c.VGPU.asking(o.VGPU)
	}
	if o.GVTg == nil {
		c.GVTg = nil
	}
	if o.MPS == nil {
		c.MPS = nil
	}
	switch {
	case o.VFIO == nil:
		c.VFIO = nil
	case c.VFIO != nil:
		c.VFIO = c.VFIO.asking(o.VFIO)
	}
	switch {
	case o.SRIOV == nil:
		c.SRIOV = nil
	default:
		c = c.asked(o)
	}
	return c
}

// asked is a card with the settings in question of which another state speaks.
func (c Card) asked(o Card) Card {
	if c.SRIOV != nil && o.SRIOV != nil {
		f := *c.SRIOV
		f.Asked = o.SRIOV.Asked
		c.SRIOV = &f
	}
	return c
}

// alike says whether a card is as it should be, in what the other state asks.
func (c Card) alike(o Card) bool {
	c = c.asking(o)
	o.MIGUnknown = o.MIGUnknown || c.MIGUnknown // while another driver has it
	if o.VFIO != nil && o.VFIO.Handed() {
		c.AMD, o.AMD = nil, nil // nor does vfio-pci know of these
	}
	return c.Layout() == o.Layout()
}
