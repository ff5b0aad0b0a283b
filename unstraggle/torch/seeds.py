"""Random numbers that depend on step and partition alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


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
