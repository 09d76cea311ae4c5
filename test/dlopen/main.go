// SPDX-License-Identifier: Apache-2.0

// Command dlopen is a Go program without cgo that reaches the driver by dlopen,
// as some monitoring tools do. It prints what it sees of the card and what an
// allocation of the bytes in its argument came to:
//
//	total 1073741824 free 1006632960 alloc 2
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"github.com/ebitengine/purego"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dlopen:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: dlopen BYTES")
	}
	bytes, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	// A context is current in one thread.
	runtime.LockOSThread()
	library, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return err
	}
	var (
		cuInit                   func(flags uint32) int32
		cuDeviceGet              func(device *int32, ordinal int32) int32
		cuDevicePrimaryCtxRetain func(context *uintptr, device int32) int32
		cuCtxSetCurrent          func(context uintptr) int32
		cuMemGetInfo             func(free, total *uint64) int32
		cuMemAlloc               func(address *uint64, bytes uint64) int32
	)
	purego.RegisterLibFunc(&cuInit, library, "cuInit")
	purego.RegisterLibFunc(&cuDeviceGet, library, "cuDeviceGet")
	purego.RegisterLibFunc(&cuDevicePrimaryCtxRetain, library, "cuDevicePrimaryCtxRetain")
	purego.RegisterLibFunc(&cuCtxSetCurrent, library, "cuCtxSetCurrent")
	purego.RegisterLibFunc(&cuMemGetInfo, library, "cuMemGetInfo_v2")
	purego.RegisterLibFunc(&cuMemAlloc, library, "cuMemAlloc_v2")

	var (
		device                int32
		context               uintptr
		free, total, anywhere uint64
	)
	for _, step := range []struct {
		name string
		call func() int32
	}{
		{"cuInit", func() int32 { return cuInit(0) }},
		{"cuDeviceGet", func() int32 { return cuDeviceGet(&device, 0) }},
		{"cuDevicePrimaryCtxRetain", func() int32 { return cuDevicePrimaryCtxRetain(&context, device) }},
		{"cuCtxSetCurrent", func() int32 { return cuCtxSetCurrent(context) }},
		{"cuMemGetInfo_v2", func() int32 { return cuMemGetInfo(&free, &total) }},
	} {
		if result := step.call(); result != 0 {
			return fmt.Errorf("%s: %d", step.name, result)
		}
	}
	fmt.Printf("total %d free %d alloc %d\n", total, free, cuMemAlloc(&anywhere, bytes))
	return nil
}
