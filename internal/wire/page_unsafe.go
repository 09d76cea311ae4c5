// SPDX-License-Identifier: Apache-2.0

package wire

import "unsafe"

// The mapping has PageBytes and starts on a page, so both views fit and are
// aligned; wire_test.go compares their layout with the header's.

func limitsView(memory []byte) *Limits {
	return (*Limits)(unsafe.Pointer(&memory[0]))
}

func clientView(memory []byte) *Client {
	return (*Client)(unsafe.Pointer(&memory[0]))
}
