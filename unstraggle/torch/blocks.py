"""Blocks of a code on a network: moved to where the backward pass can pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.names import no_expression
from .layout import Layout


def aligned(code: Code, layout: Layout, ends: Sequence[int]) -> Code:
    """The code with each block ending at the nearest place where the backward pass can pause; the head is in the first block.

    ends: after how many parameters that is possible, see `stages.joints`. Blocks are fractions of the parameters' coordinates.
    """
    stops = np.array(list(accumulate(layout.sizes)))[np.asarray(ends) - 1]
    wanted = np.cumsum(code.blocks) * stops[-1]
    if len(wanted) > len(stops):
        raise Invalid(
            f"{code.name} has {len(wanted)} blocks, but the backward pass of this network can pause only between "
            f"{len(stops)} groups of layers. Use fewer blocks; us.torch.profile_blocks shows the groups."
        )
    chosen: list[int] = []
    for number, end in enumerate(wanted[:-1]):
        first, last = (chosen[-1] + 1 if chosen else 0), len(stops) - (len(wanted) - number)
        chosen.append(first + int(np.argmin(np.abs(stops[first : last + 1] - end))))
    sizes = np.diff([0, *stops[chosen], stops[-1]])
    sizes[0] += layout.head
    moved = tuple((sizes / layout.dim).tolist())
    return code if moved == code.blocks else replace(code, name=no_expression(f"{code.name}, cut between layers"), blocks=moved)
