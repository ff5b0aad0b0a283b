"""Work conserving: small tasks are handed out one by one, so that nothing is computed twice while there is something fresh."""

from __future__ import annotations

from typing import Any

from ..checks import require_count, require_load
from ..errors import Invalid
from ..scheme.code import Code
from .facts import scheme
from .shared import handed

WHY = "A share of 1/n of the data is cut into so many tasks."


@scheme(
    "handed",
    "work_conserving(12, load=3, pieces=4)",
    sent="m_i = Σ_{j∈S(i)} g_j,  S(i) = the partitions that the round has handed to worker i, once, when asked",
    decoded="g = Σ_i m_i",
    papers=("attia2017combating", "ramamoorthy2024leveraging"),
    tried=(
        "work_conserving(5, load=2, pieces=3)",
        "work_conserving(6, load=6, pieces=2, helpers=False)",
        "work_conserving(4, load=3, pieces=4, reserve=1)",
        "work_conserving(1, load=1, pieces=2)",
    ),
)
def work_conserving(n: int, load: int, pieces: int, *, helpers: bool = True, reserve: int = 0) -> Code:
    """Workers that hold `load` shares, each cut into `pieces`, get the next piece when they have done one, and send one sum.

    Nothing is computed twice while there is something fresh. helpers: then pieces that are overdue are given to others as
    well, and the first result counts. reserve: pieces that a worker has ahead, where a word from the master takes long. Its kin
    are work exchange (Attia and Tandon) and partial sums on request (Ramamoorthy, Meng and Girimaji). Tolerates load - 1 lost
    workers. Not for tiny pieces on an accelerator, where each has a fixed cost.

    >>> code = work_conserving(4, load=2, pieces=4)
    >>> code.k, code.load, len(code.messages), code.threshold
    (16, 2.0, 4, 3)
    """
    n, load = require_load("work_conserving", n, load)
    pieces = require_count("work_conserving", "pieces", pieces, 1, 10**4, WHY)
    reserve = require_count("work_conserving", "reserve", reserve, 0, 10**4, "So many pieces a worker has ahead.")
    return handed(
        f"work_conserving({n}, load={load}, pieces={pieces}{_options(helpers, reserve)})",
        n,
        load,
        pieces,
        helpers=require_choice(helpers),
        reserve=reserve,
    )


def require_choice(helpers: Any) -> bool:
    if not isinstance(helpers, bool):
        raise Invalid(f"work_conserving needs helpers=True or helpers=False, but got helpers={helpers!r}.")
    return helpers


def _options(helpers: bool, reserve: int) -> str:
    return ("" if helpers else ", helpers=False") + (f", reserve={reserve}" if reserve else "")
