"""Outgoing: parameters into the memory from which workers read them, and back to where they are from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..runtime.sums import Pass, Sums, address, copies, finite
from .ferry import Ferry, away
from .layout import Layout


class Outgoing:
    """Writes tensors into flat vectors, and sees in the same pass whether all numbers are finite.

    Not by torch where it can be helped: its threads sleep by then, and to wake them takes longer than to copy a million
    numbers. What is needed for that is prepared once for each vector, and again when a tensor lies elsewhere. Tensors of a
    device go to the host in one pass.

    home: parameters move into that memory and stay there, so that whoever changes them writes where workers read.
    """

    def __init__(self, layout: Layout, home: bool = False) -> None:
        self._layout, self._home = layout, home
        self._pieces: dict[int, list[Tensor]] = {}
        self._copies: dict[int, tuple[list[Any], Sums | None]] = {}
        self._begun = Pass(True)
        self._ferry: Ferry | None = None

    def write(self, flat: Any, tensors: Sequence[Tensor]) -> bool | Pass | Callable[[], bool] | None:
        """Whether all are finite; a pass that may still write them; who looks, where they are on a device and nobody should
        wait; None: nobody has looked."""
        self._begun.fine()  # who writes anew may have given up what he began
        self._ferry = self._to(away(tensors)) if isinstance(flat, np.ndarray) else None
        if self._ferry is not None:
            return partial(finite, self._ferry.down(tensors, flat))
        at = address(flat) if isinstance(flat, np.ndarray) else flat.data_ptr()
        if at not in self._pieces:
            self._pieces[at] = self._layout.cut(torch.as_tensor(flat), tensors)
        if self._home:
            return self._move_in(self._pieces[at], tensors)
        if isinstance(flat, np.ndarray) and self._begin(at, tensors):
            return self._begun
        with torch.no_grad():
            torch._foreach_copy_(self._pieces[at], list(tensors))
        return None if isinstance(flat, np.ndarray) else partial(finite, flat)

    @staticmethod
    def _move_in(pieces: Sequence[Tensor], tensors: Sequence[Tensor]) -> bool:
        """What lies elsewhere is copied; parameters stay then. True, though nobody has looked: workers do, at every loss."""
        for piece, tensor in zip(pieces, tensors, strict=True):
            if tensor.data_ptr() != piece.data_ptr():
                piece.copy_(tensor.detach())
                if isinstance(tensor, nn.Parameter):
                    tensor.data = piece
        return True

    def move_out(self, tensors: Sequence[Tensor]) -> None:
        """Give parameters that have moved in memory of their own."""
        theirs = {piece.data_ptr() for pieces in self._pieces.values() for piece in pieces} if self._home else set()
        for tensor in tensors:
            if tensor.data_ptr() in theirs:
                tensor.data = tensor.data.clone()

    def back(self, flat: Tensor) -> Tensor:
        """A flat vector of the host, on the device from which the last parameters came in one pass; else as it is."""
        return flat if self._ferry is None else self._ferry.up(flat)

    def _to(self, device: torch.device | None) -> Ferry | None:
        if device is None:
            return None
        same = self._ferry is not None and self._ferry.device == device
        return self._ferry if same else Ferry(self._layout, device)

    def _begin(self, at: int, tensors: Sequence[Tensor]) -> bool:
        """Begin to copy tensors to their pieces; not where some lie in memory otherwise than these. That is looked at after
        it has begun: as a rule they lie where they lay before."""
        before, prepared = self._copies.get(at, (None, None))
        if prepared is not None:
            self._begun = prepared.begin()
        now = [(tensor.data_ptr(), tensor.stride()) for tensor in tensors]
        if before == now:
            return prepared is not None
        self._begun.fine()
        pairs = list(zip(self._pieces[at], tensors, strict=True))
        fit = all(_fits(piece, tensor) for piece, tensor in pairs)
        self._copies[at] = now, copies([(_vector(piece), _vector(tensor)) for piece, tensor in pairs]) if fit else None
        return fit and self._begin(at, tensors)


def _fits(piece: Tensor, tensor: Tensor) -> bool:
    """Whether numbers of a tensor stand in the order of those of its piece, which fills its memory."""
    same = tensor.device == piece.device and tensor.dtype == piece.dtype and tensor.layout is torch.strided
    return same and tensor.shape == piece.shape and tensor.stride() == piece.stride()


def _vector(tensor: Tensor) -> NDArray[Any]:
    """A tensor that fills its memory, in the order of that."""
    return tensor.detach().as_strided((tensor.numel(),), (1,)).numpy()
