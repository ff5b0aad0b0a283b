"""Explicit random streams."""

from __future__ import annotations

import numpy as np

Seed = int | np.random.Generator | None


def generator(rng: Seed) -> np.random.Generator:
    """A generator from a generator (itself), an integer seed, or None (fresh entropy)."""
    return rng if isinstance(rng, np.random.Generator) else np.random.default_rng(rng)
