"""Communication-efficient gradient coding (Ye and Abbe 2018): more computing buys shorter messages."""

from __future__ import annotations

import numpy as np

from ..checks import require_count, require_stragglers
from ..encoders import mixing
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..scheme.names import seeded
from ..scheme.rule import Need
from .facts import scheme

PAPER = """@inproceedings{ye2018communication,
  title     = {Communication-Computation Efficient Gradient Coding},
  author    = {Ye, Min and Abbe, Emmanuel},
  booktitle = {Proceedings of the 35th International Conference on Machine Learning (ICML)},
  pages     = {5610--5619},
  year      = {2018},
  eprint    = {1802.03475},
}"""


@scheme(
    "one",
    "communication_efficient(12, s=2, blocks=2)",
    sent="m_i = Σ_{t=0..s+b-1} Σ_{u=1..b} B[i, (i+t, u)] g_{i+t}[block u],  1/b as long as the gradient",
    decoded="g[block u] = Σ_{i∈A} a_{u,i} m_i,  where  Σ_{i∈A} a_{u,i} B[i, :]  is 1 on block u and 0 elsewhere;  any n - s do",
    papers=(PAPER,),
    tried=("communication_efficient(8, s=1, blocks=3)", "communication_efficient(6, s=2, blocks=2)"),
    note="A worker computes s + b partitions: the time counts that, and not what shorter messages save on a slow link.",
)
def communication_efficient(n: int, s: int, blocks: int, seed: int = 0) -> Code:
    """Worker i combines all blocks of partitions i, ..., i + s + blocks - 1 (mod n) in a message of 1/blocks of the gradient.

    Any n - s messages give the sum. The load is s + blocks instead of s + 1: computing is traded for bytes, and blocks=1 is
    cyclic repetition. Coefficients are random, the best of 12 draws. The gradient must divide into equal blocks. Not for where
    computing is what takes long: `fractional_repetition` at the same load waits for less, and quantised messages
    (`quantize`) are shorter still if noise is no harm.

    >>> code = communication_efficient(6, s=1, blocks=2)
    >>> code.load, code.threshold, code.blocks
    (3.0, 5, (0.5, 0.5))
    """
    n, s = require_stragglers("communication_efficient", n, s)
    why = "A worker computes s + blocks partitions, at most all of them."
    blocks = require_count("communication_efficient", "blocks", blocks, 1, n - s, why)
    messages = Messages(np.arange(n), [(s + blocks) * blocks] * n, mixing(n, s, blocks, seed), mixes=blocks)
    target = np.tile(np.eye(blocks), n)
    decoder = Span(messages.coef, Need(n - s, tuple(range(n))), target if blocks > 1 else target[0])
    name = f"communication_efficient({n}, s={s}, blocks={blocks}{seeded(seed)})"
    return Code(name, n, _tasks(n, s + blocks, blocks), messages, decoder, blocks=(1 / blocks,) * blocks)


def _tasks(n: int, load: int, blocks: int) -> Tasks:
    """Worker i computes its partitions one after the other, each block by block."""
    worker, step = np.divmod(np.arange(n * load * blocks), load * blocks)
    place, block = np.divmod(step, blocks)
    return Tasks(worker, (worker + place) % n, block, 1 / blocks)
