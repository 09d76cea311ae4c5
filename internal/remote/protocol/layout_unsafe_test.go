// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"reflect"
	"testing"
	"unsafe"
)

// The Go structs lie as the generator computed for C, and without holes.
func TestLayout(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"Frame": {unsafe.Sizeof(Frame{}), FrameSize}, "Hello": {unsafe.Sizeof(HelloPayload{}), HelloSize},
		"Refused": {unsafe.Sizeof(RefusedPayload{}), RefusedSize}, "Welcome": {unsafe.Sizeof(WelcomePayload{}), WelcomeSize},
		"Failure": {unsafe.Sizeof(FailurePayload{}), FailureSize},
	} {
		if size[0] != size[1] {
			t.Errorf("%s has %d bytes, want %d", name, size[0], size[1])
		}
	}
	for _, view := range []any{Frame{}, HelloPayload{}, RefusedPayload{}, WelcomePayload{}, FailurePayload{}} {
		next := uintptr(0)
		for f := range reflect.TypeOf(view).Fields() {
			if f.Offset != next {
				t.Errorf("%T.%s lies at %d, the field before ends at %d", view, f.Name, f.Offset, next)
			}
			next = f.Offset + f.Type.Size()
		}
	}
}
