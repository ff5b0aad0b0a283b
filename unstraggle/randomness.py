"""Explicit random streams."""

from __future__ import annotations

import numpy as np

from .errors import Invalid

Seed = int | np.random.Generator | None


def generator(rng: Seed) -> np.random.Generator:
    """A generator from a generator (itself), an integer seed, or None (fresh entropy)."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is not None and (isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0):
        raise Invalid(f"A seed is a whole number >= 0, a numpy Generator, or None for fresh draws, but got {rng!r}.")
    return np.random.default_rng(rng)
