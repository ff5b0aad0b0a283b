"""The schemes that [C] compares: codes with quantisers for given straggle probabilities and a budget of bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ... import codes, plan
from ...codes.approximate import row_sums, table_code
from ...codes.quantized import variances
from ...errors import Invalid
from ...scheme.code import Code
from ...scheme.names import no_expression

Floats = NDArray[np.float64]
Feedback = Literal["plain", "scaled"]
FULL = 32

AUTHORS_GAMMA = 0.005
"""Of the balanced gamma, in the authors' program (github.com/qeoakemd/ICML2026-CAGC, current_scale in Simulation_COCO_.py)."""


def straggle_probabilities(n: int, deadline: float = 1.1, fastest: float = 2.0) -> Floats:
    """(n,) p_i = exp(-psi_i (deadline - 1)) with the rates psi_i on a grid from 0.01 to `fastest` instead of drawn uniformly.

    >>> straggle_probabilities(10).mean().round(6)
    np.float64(0.905863)
    """
    rates = 0.01 + (fastest - 0.01) * (np.arange(n) + 0.5) / n
    return np.asarray(np.exp(-rates * (deadline - 1)))


@dataclass(frozen=True, eq=False)
class Scheme:
    """A line of a figure: a code, or None for plain SGD that waits for everyone; and whether its workers have a memory.

    live: memories as in rounds with real workers: what a late worker did not send is not kept, where otherwise all of it is.
    """

    label: str
    code: Code | None
    feedback: Feedback | None = None
    live: bool = False


@dataclass(frozen=True)
class Cluster:
    """What a scheme is designed for: straggle probabilities, bits per coordinate of all workers together, coordinates.

    measured: relative variances of the quantisers with 2, 3, ... 16 bits, as partial gradients of the problem have them.
    """

    p: tuple[float, ...]
    budget: int
    dim: int
    measured: tuple[float, ...] = ()
    seed: int = 0

    @property
    def n(self) -> int:
        return len(self.p)

    @property
    def each(self) -> NDArray[np.int64]:
        """(n,) equal bits; what is left over goes to the workers heard most."""
        return plan.bits(self.p, budget=self.budget, dim=self.dim, method="equal", most=FULL).bits


def _equal(code: Code, cluster: Cluster) -> Code:
    """With equal bits, as the paper gives its rivals."""
    return codes.quantize(code, bits=cluster.each)


def _joint(cluster: Cluster, omega: Any = "paper", gamma: Any = "balanced") -> Code:
    """Bits by dynamic programming and the structure that is optimal for them; gamma "balanced" is [C] section V-B."""
    if cluster.budget == FULL * cluster.n:
        return codes.optimally_structured(cluster.p)
    found = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, omega=omega, gamma=gamma)
    return codes.optimally_structured(
        cluster.p, bits=found.bits, gamma=found.gamma, omega=_variances(cluster, found.bits, omega)
    )


def _variances(cluster: Cluster, bits: NDArray[np.int64], omega: Any) -> Floats:
    """(n,) variances of the quantisers in use."""
    if isinstance(omega, str):
        return variances(bits, cluster.dim, None, omega)  # type: ignore[arg-type]
    return np.asarray(omega)[bits - 2]


def _allocated(code: Code, cluster: Cluster) -> Code:
    """Another code with the bits of the joint design."""
    return codes.quantize(code, bits=plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, gamma="balanced").bits)


def _equal_joint(cluster: Cluster) -> Code:
    """The structure that is optimal for equal bits."""
    gamma = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, gamma="balanced").gamma
    return codes.optimally_structured(cluster.p, bits=cluster.each, dim=cluster.dim, gamma=gamma)


def _two_track(cluster: Cluster) -> Code:
    """The joint design with a second track for Adam, lambda = 1."""
    found = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, gamma="balanced")
    omega = _variances(cluster, found.bits, "paper")
    return plan.two_track(_joint(cluster), cluster.p, omega, gamma=found.gamma)


def _as_the_authors(cluster: Cluster) -> Code:
    """The joint design as in the authors' program: gamma 0.005 of the balanced one, bits with half the levels, negative W."""
    balanced = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, gamma="balanced").gamma
    how: Any = {"gamma": AUTHORS_GAMMA * balanced, "levels_offset": -1}
    found = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, **how)
    noise = found.gamma * variances(found.bits, cluster.dim, None, "paper")
    return codes.quantize(shared_partition(np.array(cluster.p), noise), bits=found.bits)


def shared_partition(p: Floats, noise: Floats) -> Code:
    """The structure of the authors' program: worker i has partition i + 1 with weight 1, and the rest of W_i on partition 0.

    Unbiased, with the row sums of Theorem 1, but with negative weights wherever W_i < 1, for which Lemma 1 is no bound.
    """
    n = len(p)
    weights = np.zeros((n, n))
    weights[:, 0] = row_sums(p, noise, 1.0, n)
    weights[:-1, 0] -= 1
    weights[np.arange(n - 1), np.arange(1, n)] = 1
    return table_code(no_expression(f"shared partition, n={n}"), n, weights / (1 - p[:, None]), "fixed")


def _ignore(cluster: Cluster) -> Code:
    return codes.ignore_stragglers(cluster.n)


def _stochastic(cluster: Cluster) -> Code:
    return codes.stochastic(cluster.n, cluster.p, copies=2, placement="random", seed=cluster.seed)


BUILD: dict[str, Callable[[Cluster], Code | None]] = {
    "SGD": lambda c: None,
    "IS-SGD": lambda c: _equal(_ignore(c), c),
    "BGC": lambda c: _equal(codes.bernoulli(c.n, load=2, seed=c.seed), c),
    "EHD": lambda c: _equal(codes.erasurehead(c.n, s=1), c),
    "OD": lambda c: _equal(codes.optimal_decoding(c.n, degree=2, seed=c.seed), c),
    "SGC": lambda c: _equal(_stochastic(c), c),
    "1-bit SGC": lambda c: codes.quantize(_stochastic(c), bits=1),
    "OSGC": lambda c: _equal(codes.optimally_structured(c.p), c),
    "proposed": _joint,
    "proposed, two tracks": _two_track,
    "proposed, gamma 1": lambda c: _joint(c, gamma=1.0),
    "proposed, qsgd omega": lambda c: _joint(c, "qsgd", 1.0),
    "proposed, measured omega": lambda c: _joint(c, c.measured, 1.0),
    "proposed, authors' program": _as_the_authors,
    "OSGC, authors' program": lambda c: _equal(shared_partition(np.array(c.p), np.zeros(c.n)), c),
    "OSGC, allocated bits": lambda c: _allocated(codes.optimally_structured(c.p), c),
    "proposed, equal bits": _equal_joint,
    "IS-SGD, allocated bits": lambda c: _allocated(_ignore(c), c),
    "unquantised OSGC": lambda c: codes.optimally_structured(c.p),
}


def scheme(label: str, cluster: Cluster) -> Scheme:
    """A scheme by its name in the figures; "X + EF" and "X + scaled EF" give X's workers a memory, "X + live EF" a live one."""
    name, _, memory = label.partition(" + ")
    feedback: dict[str, Feedback | None] = {"": None, "EF": "plain", "scaled EF": "scaled"}
    kind = memory.replace("live ", "")
    if name not in BUILD or kind not in feedback:
        raise Invalid(f"Unknown scheme {label!r}. Known: {', '.join(BUILD)}, each also with + EF, + scaled EF or + live EF.")
    return Scheme(label, BUILD[name](cluster), feedback[kind], kind != memory)
