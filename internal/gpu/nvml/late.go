// SPDX-License-Identifier: Apache-2.0

package nvml

// late.S and late.c find the library's functions when they are called.

// #cgo CFLAGS: -I${SRCDIR}/../../../clib/gen
// #cgo LDFLAGS: -ldl
import "C"
