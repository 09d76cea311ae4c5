// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// driver is the part of the driver API that this program needs, found by
// dlopen without cgo. A context is current in one thread: all of it is called
// from one goroutine that is locked to its thread.
type driver struct {
	cuInit                   func(flags uint32) int32
	cuDeviceGet              func(device *int32, ordinal int32) int32
	cuDeviceGetName          func(name *byte, room, device int32) int32
	cuDevicePrimaryCtxRetain func(context *uintptr, device int32) int32
	cuCtxSetCurrent          func(context uintptr) int32
	cuModuleLoadDataEx       func(module *uintptr, image unsafe.Pointer, count uint32, options, values unsafe.Pointer) int32
	cuModuleGetFunction      func(function *uintptr, module uintptr, name string) int32
	cuMemAlloc               func(address *uint64, bytes uint64) int32
	cuMemcpyHtoD             func(to uint64, from unsafe.Pointer, bytes uint64) int32
	cuMemcpyDtoH             func(to unsafe.Pointer, from uint64, bytes uint64) int32
	cuLaunchKernel           func(function uintptr, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, stream uintptr,
		parameters, extra unsafe.Pointer) int32
}

func openDriver() (*driver, error) {
	library, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	d := &driver{}
	for name, place := range map[string]any{
		"cuInit":                   &d.cuInit,
		"cuDeviceGet":              &d.cuDeviceGet,
		"cuDeviceGetName":          &d.cuDeviceGetName,
		"cuDevicePrimaryCtxRetain": &d.cuDevicePrimaryCtxRetain,
		"cuCtxSetCurrent":          &d.cuCtxSetCurrent,
		"cuModuleLoadDataEx":       &d.cuModuleLoadDataEx,
		"cuModuleGetFunction":      &d.cuModuleGetFunction,
		"cuMemAlloc_v2":            &d.cuMemAlloc,
		"cuMemcpyHtoD_v2":          &d.cuMemcpyHtoD,
		"cuMemcpyDtoH_v2":          &d.cuMemcpyDtoH,
		"cuLaunchKernel":           &d.cuLaunchKernel,
	} {
		if _, err := purego.Dlsym(library, name); err != nil {
			return nil, err
		}
		purego.RegisterLibFunc(place, library, name)
	}
	return d, nil
}

// check turns a CUresult into an error.
func check(call string, result int32) error {
	if result != 0 {
		return fmt.Errorf("%s: CUresult %d", call, result)
	}
	return nil
}

// start makes a context on the first card current and returns the card's name.
func (d *driver) start() (string, error) {
	var (
		device  int32
		context uintptr
		name    [128]byte
	)
	if err := check("cuInit", d.cuInit(0)); err != nil {
		return "", err
	}
	if err := check("cuDeviceGet", d.cuDeviceGet(&device, 0)); err != nil {
		return "", err
	}
	if err := check("cuDeviceGetName", d.cuDeviceGetName(&name[0], int32(len(name)), device)); err != nil {
		return "", err
	}
	if err := check("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(&context, device)); err != nil {
		return "", err
	}
	end := 0
	for end < len(name) && name[end] != 0 {
		end++
	}
	return string(name[:end]), check("cuCtxSetCurrent", d.cuCtxSetCurrent(context))
}

// kernels loads PTX and finds kernels in it.
func (d *driver) kernels(ptx string, names ...string) ([]uintptr, error) {
	image := append([]byte(ptx), 0)
	log := make([]byte, 4096)
	// CU_JIT_ERROR_LOG_BUFFER and its size
	options := [2]uint32{5, 6}
	values := [2]unsafe.Pointer{unsafe.Pointer(&log[0])}
	*(*uintptr)(unsafe.Pointer(&values[1])) = uintptr(len(log))
	var (
		module uintptr
		found  []uintptr
		pinned runtime.Pinner
	)
	pinned.Pin(&log[0])
	defer pinned.Unpin()
	if err := check("cuModuleLoadDataEx", d.cuModuleLoadDataEx(&module, unsafe.Pointer(&image[0]), 2,
		unsafe.Pointer(&options), unsafe.Pointer(&values))); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	for _, name := range names {
		var function uintptr
		if err := check("cuModuleGetFunction "+name, d.cuModuleGetFunction(&function, module, name)); err != nil {
			return nil, err
		}
		found = append(found, function)
	}
	return found, nil
}

func (d *driver) allocate(floats int) (uint64, error) {
	var address uint64
	return address, check("cuMemAlloc", d.cuMemAlloc(&address, uint64(floats)*4))
}

func (d *driver) write(to uint64, from []float32) error {
	return check("cuMemcpyHtoD", d.cuMemcpyHtoD(to, unsafe.Pointer(&from[0]), uint64(len(from))*4))
}

func (d *driver) read(to []float32, from uint64) error {
	return check("cuMemcpyDtoH", d.cuMemcpyDtoH(unsafe.Pointer(&to[0]), from, uint64(len(to))*4))
}

// launch starts a kernel with blocks in one dimension. Parameters are *uint64
// (addresses) and *uint32.
func (d *driver) launch(function uintptr, blocks, threads int, parameters ...any) error {
	places := make([]unsafe.Pointer, len(parameters))
	var pinned runtime.Pinner // the driver follows these pointers
	defer pinned.Unpin()
	for i, parameter := range parameters {
		switch p := parameter.(type) {
		case *uint64:
			places[i] = unsafe.Pointer(p)
		case *uint32:
			places[i] = unsafe.Pointer(p)
		default:
			return fmt.Errorf("parameter %d is a %T", i, parameter)
		}
		pinned.Pin(parameter)
	}
	return check("cuLaunchKernel", d.cuLaunchKernel(function, uint32(blocks), 1, 1, uint32(threads), 1, 1, 0, 0,
		unsafe.Pointer(&places[0]), nil))
}
