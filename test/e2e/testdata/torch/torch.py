# SPDX-License-Identifier: Apache-2.0
"""As much of PyTorch as scripts/hardware-check uses, over the driver API of
libcuda.so.1: memory is the driver's, and a matrix product is a kernel of
500 us. It lets the check's PyTorch rows run over a simulated card."""

import ctypes
import sys
import types

__version__ = "0 (not PyTorch)"
version = types.SimpleNamespace(cuda="0")
uint8 = "uint8"
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace(allow_tf32=True)))

driver = ctypes.CDLL("libcuda.so.1")
word = ctypes.c_uint64


class OutOfMemoryError(RuntimeError):
    pass


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result == 2:
        raise OutOfMemoryError("CUDA out of memory")
    if result != 0:
        raise RuntimeError(f"{name}: CUDA error {result}")


SOURCE = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry divvy_busy(.param .u64 ns)
{
	ret;
}
"""
state = {}
counts = {"cuLaunchKernel": 0}


def start():
    if state:
        return
    call("cuInit", 0)
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), SOURCE)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"divvy_busy")
    state.update(function=function, stream=Stream())
    state["own"] = state["stream"]


class Tensor:
    def __init__(self, count=1):
        start()
        self.count, self.address = count, word()
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(count))
        state["reserved"] = state.get("reserved", 0) + count

    def numel(self):
        return self.count

    def sum(self):
        return self

    def item(self):
        return True

    def __eq__(self, other):
        return self


def empty(count, dtype=None, device=None):
    return Tensor(count)


def ones(count, device=None):
    return Tensor(count)


def randn(rows, columns, device=None):
    return Tensor(4 * rows * columns)


def empty_like(tensor):
    return Tensor(tensor.count)


def mm(one, other, out=None):
    counts["cuLaunchKernel"] += 1
    busy = word(500000)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(busy))
    call("cuLaunchKernel", state["function"], 1, 1, 1, 32, 1, 1, 0, state["stream"].handle, arguments, None)


class Stream:
    def __init__(self):
        self.handle = ctypes.c_void_p()
        call("cuStreamCreate", ctypes.byref(self.handle), 1)


class Event:
    def __init__(self):
        self.handle = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(self.handle), 2)

    def record(self):
        call("cuEventRecord", self.handle, state["stream"].handle)

    def synchronize(self):
        call("cuEventSynchronize", self.handle)

    def __del__(self):
        driver.cuEventDestroy_v2(self.handle)


class CUDAGraph:
    def replay(self):
        call("cuGraphLaunch", self.executable, state["stream"].handle)


class On:
    """What `with torch.cuda.stream(s)` and `with torch.cuda.graph(g)` do."""

    def __init__(self, stream, graph=None):
        self.stream, self.captured = stream, graph

    def __enter__(self):
        state["stream"] = self.stream
        if self.captured is not None:
            call("cuStreamBeginCapture_v2", self.stream.handle, 0)  # global, as PyTorch does

    def __exit__(self, *_):
        if self.captured is not None:
            graph = ctypes.c_void_p()
            self.captured.executable = ctypes.c_void_p()
            call("cuStreamEndCapture", self.stream.handle, ctypes.byref(graph))
            call("cuGraphInstantiateWithFlags", ctypes.byref(self.captured.executable), graph, ctypes.c_uint64(0))
        state["stream"] = state["own"]


def mem_get_info():
    start()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def is_available():
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def get_device_name(index):
    device, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceGetName", name, 128, device)
    return name.value.decode()


def get_device_capability(index):
    both = []
    for attribute in 75, 76:
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), attribute, index)
        both.append(value.value)
    return tuple(both)


def device_count():
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


class profile:
    def __init__(self, activities):
        pass

    def __enter__(self):
        self.before = dict(counts)
        return self

    def __exit__(self, *_):
        self.counted = {key: count - self.before[key] for key, count in counts.items()}

    def key_averages(self):
        return [types.SimpleNamespace(key=key, count=count) for key, count in self.counted.items()]


profiler = types.ModuleType("torch.profiler")
profiler.profile, profiler.ProfilerActivity = profile, types.SimpleNamespace(CPU=0, CUDA=1)
sys.modules["torch.profiler"] = profiler
cuda = types.ModuleType("torch.cuda")
cuda.OutOfMemoryError, cuda.Stream, cuda.Event, cuda.CUDAGraph = OutOfMemoryError, Stream, Event, CUDAGraph
cuda.mem_get_info, cuda.is_available = mem_get_info, is_available
cuda.device_count, cuda.get_device_name, cuda.get_device_capability = device_count, get_device_name, get_device_capability
cuda.memory_reserved = lambda: state["reserved"]
cuda.stream = On
cuda.graph = lambda graph: On(Stream(), graph)
cuda.synchronize = lambda: call("cuCtxSynchronize")
sys.modules["torch.cuda"] = cuda
