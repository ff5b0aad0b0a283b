"""Parcels: objects from one process to another that it has forked. Tensors and arrays come in memory that both have mapped."""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engines.shared import Area

HEAD = struct.Struct("<QQ")
"""What goes with the memory: bytes of the pickle that stands first in it, and how many buffers follow."""
ALIGNED = 64
"""Every buffer begins at a multiple of this, so that any type can stand there."""


def send(link: socket.socket, value: Any) -> None:
    """Put a value into fresh memory, and give that away. link: one end of a pair of SOCK_SEQPACKET."""
    text, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(text, protocol=5, buffer_callback=buffers.append).dump(value)
    raw = [text.getbuffer(), *(one.raw() for one in buffers)]
    sizes = np.array([one.nbytes for one in raw[1:]], np.int64)
    places = _places([raw[0].nbytes, sizes.nbytes, *sizes.tolist()])
    area = Area(places[-1].stop)
    try:
        memory = area.map()
        for place, one in zip(places, (raw[0], sizes.data.cast("B"), *raw[1:]), strict=True):
            memory[place] = np.frombuffer(one, np.uint8)
        socket.send_fds(link, [HEAD.pack(raw[0].nbytes, len(sizes))], [area.fd])
    finally:
        area.close()


def receive(link: socket.socket) -> Any:
    """The value that was sent. Its tensors and arrays are views of the memory that came, which stays as long as they do. For
    processes that one has forked: it unpickles."""
    head, fds, _, _ = socket.recv_fds(link, HEAD.size, 1, socket.MSG_CMSG_CLOEXEC)
    if not head:
        raise EOFError
    length, count = HEAD.unpack(head)
    table = _places([length, 8 * count])
    area = Area(_size(fds[0]), fds[0])
    try:
        memory = area.map()
    finally:
        area.close()
    places = _places([length, 8 * count, *memory[table[1]].view(np.int64).tolist()])
    return pickle.loads(memory[places[0]].data, buffers=[memory[place] for place in places[2:]])


def _size(fd: int) -> int:
    return os.fstat(fd).st_size


def _places(sizes: Iterable[int]) -> list[slice]:
    """Where things of some sizes stand, one behind the other.

    >>> _places([10, 0, 70])
    [slice(0, 10, None), slice(64, 64, None), slice(64, 134, None)]
    """
    sizes = list(sizes)
    begins = accumulate((-(-size // ALIGNED) * ALIGNED for size in sizes), initial=0)
    return [slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=False)]


class _Pickler(pickle.Pickler):
    """Tensors of the host go as buffers, as NumPy's arrays do by themselves."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or value.device.type != "cpu" or value.layout is not torch.strided or value.requires_grad:
            return NotImplemented
        whole = value.resolve_conj().resolve_neg().contiguous()
        numbers = whole.reshape(-1).view(torch.uint8).numpy().data
        return _tensor, (pickle.PickleBuffer(numbers), whole.dtype, tuple(whole.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not len(buffer):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)
