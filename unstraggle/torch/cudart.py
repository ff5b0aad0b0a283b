"""Device memory that processes share: CUDA's runtime, as torch has loaded it, by ctypes.

torch's own shared tensors count their readers in files, and one that was killed counts for ever. Here the master owns the
memory, workers open it by a handle of 64 bytes, and what a process had opened goes with it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UnstraggleError

HANDLE = 64
LAZY_PEERS = 1
PORTABLE = 1
SIGN = b"unstraggle ipc.."
PROBE_SECONDS = 60.0
"""For a process that opens a handle; a context takes a fraction of a second."""

PROBE = f"""
import ctypes, sys
path, device, handle = sys.argv[1:]
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * {HANDLE})]
lib, at, room = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.create_string_buffer({len(SIGN)})
lib.cudaIpcOpenMemHandle.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
lib.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
given = Handle.from_buffer_copy(bytes.fromhex(handle))
codes = [lib.cudaSetDevice(int(device)), lib.cudaIpcOpenMemHandle(ctypes.byref(at), given, {LAZY_PEERS})]
codes.append(lib.cudaMemcpy(room, at, {len(SIGN)}, 2))
sys.exit(0 if codes == [0, 0, 0] and room.raw == {SIGN!r} else 1)
"""
"""What a worker will do, in a process without torch."""


class Handle(ctypes.Structure):
    """cudaIpcMemHandle_t."""

    _fields_ = (("bytes", ctypes.c_char * HANDLE),)


class Raw:
    """Device memory as torch takes it without a copy."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def allocate(size: int, device: torch.device) -> int:
    """The address of so many bytes of zeros."""
    with torch.cuda.device(device):
        at = ctypes.c_void_p()
        _do("cudaMalloc", ctypes.byref(at), ctypes.c_size_t(size))
        assert at.value is not None
        _do("cudaMemset", at, 0, ctypes.c_size_t(size))
        return at.value


def free(address: int, device: torch.device) -> None:
    """Give memory back; what workers had opened of it is gone with them."""
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        _do("cudaFree", ctypes.c_void_p(address))


def handle_of(address: int) -> bytes:
    """By which another process opens what was allocated here."""
    found = Handle()
    _do("cudaIpcGetMemHandle", ctypes.byref(found), ctypes.c_void_p(address))
    return bytes(bytearray(found))


def opened(handle: bytes, device: torch.device) -> int:
    """The address, in this process, of memory that another one has allocated."""
    _require_seen(device)
    with torch.cuda.device(device):
        torch.zeros(1, device=device)  # a context
        at = ctypes.c_void_p()
        _do("cudaIpcOpenMemHandle", ctypes.byref(at), Handle.from_buffer_copy(handle), ctypes.c_uint(LAZY_PEERS))
        assert at.value is not None
        return at.value


def bytes_at(address: int, size: int, device: torch.device) -> Tensor:
    """Memory as a tensor of bytes."""
    return torch.as_tensor(Raw(address, size), device=device)


def can_share(device: torch.device) -> bool:
    """Whether another process can read memory of this one on the device: one tries it, in a fraction of a second."""
    try:
        address = allocate(HANDLE, device)
    except UnstraggleError:
        return False
    try:
        bytes_at(address, len(SIGN), device).copy_(torch.frombuffer(bytearray(SIGN), dtype=torch.uint8))
        torch.cuda.synchronize(device)
        index = torch.cuda.current_device() if device.index is None else device.index
        command = [sys.executable, "-I", "-c", PROBE, _path(), str(index), handle_of(address).hex()]
        return subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except (UnstraggleError, subprocess.TimeoutExpired):
        return False
    finally:
        free(address, device)


def pin(address: int, size: int, device: torch.device) -> bool:
    """Let devices read and write memory of the host by themselves, as long as this process lives; whether that was possible."""
    _require_seen(device)
    with torch.cuda.device(device):
        torch.zeros(1, device=device)  # a context
        return int(torch.cuda.cudart().cudaHostRegister(address, size, PORTABLE)) == 0  # type: ignore[no-untyped-call]


def unpin(address: int) -> None:
    """Before the memory is given back."""
    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def wait_for(device: torch.device) -> None:
    """Until what this thread has asked of a device is done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _require_seen(device: torch.device) -> None:
    """Say so where this process has no device, unlike the one that started it."""
    if not torch.cuda.is_available():
        raise UnstraggleError(f"This worker sees no CUDA device, but is to compute on {device}. Look at CUDA_VISIBLE_DEVICES.")


def _do(name: str, *arguments: Any) -> None:
    code = getattr(_library(), name)(*arguments)
    if code:
        raise UnstraggleError(f"{name} failed with CUDA's error {code}: {_library().cudaGetErrorString(code).decode()}.")


@cache
def _library() -> Any:
    torch.cuda.init()  # type: ignore[no-untyped-call]
    library = ctypes.CDLL(_path())
    library.cudaGetErrorString.restype = ctypes.c_char_p
    library.cudaIpcOpenMemHandle.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
    return library


@cache
def _path() -> str:
    """The file of the library that torch uses: another copy of it would not know torch's contexts as well."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = [line.split(maxsplit=5)[5] for line in lines if "libcudart" in line]
    if not found:
        raise UnstraggleError('torch has loaded no libcudart, so device memory cannot be shared. Use Local(way="pinned").')
    return found[0]
