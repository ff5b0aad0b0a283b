"""Random numbers that depend on step and partition alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

States = tuple[Any, Any, Any]
"""Where the generators of torch (that of the CPU), numpy and random stand."""


@contextlib.contextmanager
def seeded(seed: tuple[int, ...], device: torch.device) -> Iterator[None]:
    """Random numbers of torch, numpy and random from a seed, and afterwards as if nothing had been drawn.

    numpy's global generator, too, because transforms of datasets use it.
    """
    words = [int(word) for word in np.random.SeedSequence(seed).generate_state(4)]
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        # of a CPU alone: torch.manual_seed asks all kinds of devices, which takes longer than all else here together
        begin = torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed
        begin(words[0] << 31 | words[1])
        random.seed(words[2])
        np.random.seed(words[3])  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


def states() -> States:
    """Where the generators stand now."""
    return torch.get_rng_state().numpy(), np.random.get_state(), random.getstate()  # noqa: NPY002


def restore(found: States) -> None:
    """Let the generators stand where they stood."""
    torch.set_rng_state(torch.from_numpy(found[0]))
    np.random.set_state(found[1])  # noqa: NPY002
    random.setstate(found[2])


def alike(one: States, other: States) -> bool:
    """Whether nothing was drawn between one and the other.

    >>> before = states()
    >>> _ = torch.randn(1)
    >>> alike(before, before), alike(before, states())
    (True, False)
    """
    same = np.array_equal(one[0], other[0]) and one[2] == other[2]
    return bool(same and all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True)))
