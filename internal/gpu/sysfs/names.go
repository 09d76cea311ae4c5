// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"strings"
)

// The lists of names that distributions install, bounded in size.
const maxNames = 8 << 20

func nameLists() []string {
	return []string{"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"}
}

// names is a pci.ids file, searched as it is: a few look-ups do not pay for an
// index.
type names struct{ text string }

// Name is what the machine's list of PCI ids calls a function, else its ids.
func (b *Bus) Name(f Function) string {
	if b.names == nil {
		b.names = &names{}
		for _, list := range nameLists() {
			if raw, ok := b.tree.read(list, maxNames); ok {
				b.names.text = "\n" + printable(raw)
				break
			}
		}
	}
	if name := b.names.find(hex4(f.VendorID)[2:], hex4(f.DeviceID)[2:]); name != "" {
		return name
	}
	return hex4(f.VendorID)[2:] + ":" + hex4(f.DeviceID)[2:]
}

// find looks a device up. "GA100 [A100 SXM4 40GB]" is called by what stands in
// brackets.
func (n *names) find(vendor, device string) string {
	_, rest, ok := strings.Cut(n.text, "\n"+vendor+"  ")
	if !ok {
		return ""
	}
	for {
		_, rest, ok = strings.Cut(rest, "\n")
		if !ok || rest == "" || rest[0] != '\t' && rest[0] != '#' && rest[0] != '\n' {
			return ""
		}
		line, _, _ := strings.Cut(rest, "\n")
		if name, ok := strings.CutPrefix(line, "\t"+device+"  "); ok {
			_, inside, ok := strings.Cut(name, "[")
			if inside, closed := strings.CutSuffix(inside, "]"); ok && closed {
				return inside
			}
			return strings.TrimSpace(name)
		}
	}
}
