# SPDX-License-Identifier: Apache-2.0
# A process that makes memory which others may hold, and holds that of others: line by
# line, as it is told. Descriptors go and come by the socket that is its descriptor 3.
import ctypes, os, socket, struct, sys

cuda = ctypes.CDLL("libcuda.so.1")
line = socket.socket(fileno=3)
things, kept = {}, []
P = ctypes.byref


def must(result, what):
    if result:
        raise OSError(result, what)


def prop():
    return struct.pack("<IIIIQ8x", 1, 1, 1, 0, 0)


def note(thing):
    things[len(things)] = thing
    return len(things) - 1


def fd_of(handle):
    fd = ctypes.c_int()
    must(cuda.cuMemExportToShareableHandle(P(fd), handle, 1, ctypes.c_ulonglong(0)), "export")
    return fd.value


def receive():
    return socket.recv_fds(line, 1, 1)[1][0]


def send(fd):
    socket.send_fds(line, [b"x"], [fd])
    os.close(fd)


def mapped(handle, size):
    at = ctypes.c_ulonglong()
    must(cuda.cuMemAddressReserve(P(at), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0), ctypes.c_ulonglong(0)), "reserve")
    must(cuda.cuMemMap(at, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0)), "map")
    return at


def obey(word, *arguments):
    if word == "start":
        context = ctypes.c_void_p()
        must(cuda.cuInit(0), "init")
        must(cuda.cuDevicePrimaryCtxRetain(P(context), 0), "retain")
        must(cuda.cuCtxSetCurrent(context), "current")
    elif word == "create":
        handle = ctypes.c_ulonglong()
        must(cuda.cuMemCreate(P(handle), ctypes.c_size_t(int(arguments[0])), prop(), ctypes.c_ulonglong(0)), "create")
        return note(handle)
    elif word == "send":
        send(fd_of(things[int(arguments[0])]))
    elif word == "keep":
        kept.append(fd_of(things[int(arguments[0])]))
    elif word == "hold":
        kept.append(receive())
    elif word == "drop":
        while kept:
            os.close(kept.pop())
    elif word == "take":
        fd, handle = receive(), ctypes.c_ulonglong()
        result = cuda.cuMemImportFromShareableHandle(P(handle), ctypes.c_void_p(fd), 1)
        os.close(fd)
        must(result, "import")
        return note(handle)
    elif word == "again":  # of what it has itself
        fd, handle = fd_of(things[int(arguments[0])]), ctypes.c_ulonglong()
        result = cuda.cuMemImportFromShareableHandle(P(handle), ctypes.c_void_p(fd), 1)
        os.close(fd)
        must(result, "import")
        return note(handle)
    elif word == "map":
        return note((mapped(things[int(arguments[0])], int(arguments[1])), int(arguments[1])))
    elif word == "unmap":
        at, size = things[int(arguments[0])]
        must(cuda.cuMemUnmap(at, ctypes.c_size_t(size)), "unmap")
    elif word == "release":
        must(cuda.cuMemRelease(things[int(arguments[0])]), "release")
    elif word == "alloc":
        at = ctypes.c_ulonglong()
        must(cuda.cuMemAlloc_v2(P(at), ctypes.c_size_t(int(arguments[0]))), "alloc")
        return note(at)
    elif word == "free":
        must(cuda.cuMemFree_v2(things[int(arguments[0])]), "free")
    elif word == "ipc":
        text = (ctypes.c_char * 64)()
        must(cuda.cuIpcGetMemHandle(text, things[int(arguments[0])]), "get handle")
        return text.raw.hex()
    elif word == "open":
        class Handle(ctypes.Structure):
            _fields_ = [("reserved", ctypes.c_char * 64)]
        handle, at = Handle.from_buffer_copy(bytes.fromhex(arguments[0])), ctypes.c_ulonglong()
        must(cuda.cuIpcOpenMemHandle_v2(P(at), handle, 1), "open handle")
        return note(at)
    elif word == "close":
        must(cuda.cuIpcCloseMemHandle(things[int(arguments[0])]), "close handle")
    elif word == "pool":  # its descriptor goes out; the answer is what a pointer of it is found by
        pool, at, fd, data = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_int(), (ctypes.c_char * 64)()
        props = struct.pack("<IIIIQQ", 1, 1, 1, 0, 0, 0) + bytes(56)
        must(cuda.cuMemPoolCreate(P(pool), props), "pool")
        must(cuda.cuMemAllocFromPoolAsync(P(at), ctypes.c_size_t(int(arguments[0])), pool, None), "alloc")
        must(cuda.cuCtxSynchronize(), "synchronize")
        must(cuda.cuMemPoolExportToShareableHandle(P(fd), pool, 1, ctypes.c_ulonglong(0)), "export pool")
        must(cuda.cuMemPoolExportPointer(data, at), "export pointer")
        send(fd.value)
        return "%d %s" % (note(at), data.raw.hex())
    elif word == "pointer":
        pool, at, fd = ctypes.c_void_p(), ctypes.c_ulonglong(), receive()
        must(cuda.cuMemPoolImportFromShareableHandle(P(pool), ctypes.c_void_p(fd), 1, ctypes.c_ulonglong(0)), "import pool")
        os.close(fd)
        must(cuda.cuMemPoolImportPointer(P(at), pool, bytes.fromhex(arguments[0])), "import pointer")
        return note(at)
    elif word == "external":
        memory, at, size = ctypes.c_void_p(), ctypes.c_ulonglong(), int(arguments[0])
        must(cuda.cuImportExternalMemory(P(memory), struct.pack("<IIi12xQI68x", 1, 0, receive(), size, 0)), "external")
        must(cuda.cuExternalMemoryGetMappedBuffer(P(at), memory, struct.pack("<QQI68x", 0, size, 0)), "buffer")
        return "%d %d" % (note(memory), note(at))
    elif word == "destroy":
        must(cuda.cuDestroyExternalMemory(things[int(arguments[0])]), "destroy")
    elif word == "info":
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        must(cuda.cuMemGetInfo_v2(P(free), P(total)), "info")
        return free.value
    else:
        raise OSError(-22, "no such command")
    return ""


print("ready", flush=True)
for words in sys.stdin:
    try:
        print("ok", obey(*words.split()), flush=True)
    except OSError as failure:
        print("error", failure.errno, failure.strerror, flush=True)
