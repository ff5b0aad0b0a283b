"""Context: what goes to the workers with an order besides parameters, as bytes. Read without unpickling anything."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import Invalid

SIZE = struct.Struct("<Q")
"""How it begins: the bytes of a text in JSON that follows, in which tensors are numbered; then their own bytes."""
TENSOR = "\0tensor"


def pack(values: Mapping[str, Any]) -> bytes:
    """Numbers, texts, lists, dictionaries and tensors as bytes.

    >>> unpack(pack({"temperature": 0.5, "seen": torch.arange(3)}))
    {'temperature': 0.5, 'seen': tensor([0, 1, 2])}
    """
    tensors: list[Tensor] = []

    def numbered(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, Tensor | np.ndarray):
            raise Invalid(f"Numbers, texts, lists, dictionaries and tensors can go with a step, but got {value!r}.")
        tensors.append(torch.as_tensor(value).detach().cpu().contiguous())
        return {TENSOR: [str(tensors[-1].dtype).removeprefix("torch."), list(tensors[-1].shape)]}

    text = json.dumps(values, default=numbered).encode()
    bodies = [tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]
    return b"".join((SIZE.pack(len(text)), text, *bodies))


def unpack(data: bytes) -> dict[str, Any]:
    """What was packed."""
    if not data:
        return {}
    at = SIZE.size + SIZE.unpack_from(data)[0]

    def found(value: dict[str, Any]) -> Any:
        nonlocal at
        if TENSOR not in value:
            return value
        name, shape = value[TENSOR]
        kind = getattr(torch, name)
        begin, at = at, at + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return (
            torch.frombuffer(bytearray(data[begin:at]), dtype=kind).reshape(shape)
            if at > begin
            else torch.empty(shape, dtype=kind)
        )

    return dict(json.loads(data[SIZE.size : at], object_hook=found))
