"""How many steps to a target: the convergence bounds of [C], Theorems 2 and 3, for given workers, bits and constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from ..doors import door
from ..errors import Invalid
from .bits import variance
from .error import delta

Loss = Literal["strongly convex", "smooth", "smooth, decaying"]

MOST = 1e18
"""Steps after which a target counts as out of reach."""


@dataclass(frozen=True)
class Convergence:
    """A bound on the way to the optimum: `bound(steps)`, the step sizes that it needs, and the steps to a target.

    second_moment: G^2, the bound on E|estimate|^2 (equation 50). delta: the Delta of Theorem 1; the larger, the fewer steps.
    sampling: what mini-batches add to the error, the second term of equation 35. steps: None without a target, infinite where
    the bound never reaches it.
    """

    loss: Loss
    delta: float
    second_moment: float
    sampling: float
    constants: tuple[float, float, float]
    target: float | None
    steps: float | None

    def bound(self, steps: ArrayLike) -> Any:
        """What the theorem bounds after so many steps: |theta - optimum|^2, or the least or mean |gradient|^2."""
        return _bound(self.loss, self.second_moment + self.sampling, self.constants, np.asarray(steps, dtype=float))

    def step_size(self, step: ArrayLike, steps: int = 1) -> Any:
        """The learning rate of step 1, 2, ... for the *sum* of all partial gradients. steps: all of them, if it is fixed."""
        convexity, _, scale = self.constants
        t = np.asarray(step, dtype=float)
        if self.loss == "strongly convex":
            return 1 / (convexity * t)
        return scale / np.sqrt(t if self.loss == "smooth, decaying" else np.full_like(t, steps))

    def __str__(self) -> str:
        reach = "" if self.steps is None else f"; {self.steps:,.0f} steps to {self.target:g}"
        return f"{self.loss}: G^2 = {self.second_moment + self.sampling:.6g}, Delta = {self.delta:.6g}{reach}"

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return vars(self) | {"constants": list(self.constants)}


@door
def convergence(
    p: ArrayLike,
    k: int,
    *,
    loss: Loss = "strongly convex",
    bits: ArrayLike | None = None,
    dim: int | None = None,
    omega: Any = "paper",
    norm: float = 1.0,
    convexity: float = 1.0,
    smoothness: float = 1.0,
    gap: float = 1.0,
    scale: float = 1.0,
    sampling: float = 0.0,
    target: float | None = None,
) -> Convergence:
    """Steps in which `optimally_structured` reaches a target, by the bounds of [C], Theorems 2 and 3, equations 35 and 50.

    p: (n,) straggle probabilities. bits: (n,) of the messages, with dim and omega as in `plan.bits`, or omega (n,) itself;
    without bits nothing is quantised. norm: C, the longest partial gradient. The estimate of the sum of k partial gradients
    then has E|estimate|^2 <= G^2 = C^2 k^2 (1 + 1 / Delta). sampling: the variance that mini-batches add to it, E|estimate
    of a batch - of all data|^2. The code must be made for this noise, gamma = 1.

    loss="strongly convex": E|theta_T - optimum|^2 <= 4 G^2 / (convexity^2 T) with steps of 1 / (convexity t).
    loss="smooth": mean E|gradient|^2 <= (gap / scale + smoothness scale G^2 / 2) / sqrt(T), steps of scale / sqrt(T);
    loss="smooth, decaying": least E|gradient|^2, with steps of scale / sqrt(t). gap: first loss less the least.

    These are worst cases: use them to compare designs, by the ratio of their steps, and not as a forecast.

    >>> few = convergence([0.5] * 10, k=10, target=0.1)
    >>> round(few.second_moment), few.steps
    (110, 4400.0)
    >>> convergence([0.5] * 10, k=10, bits=[2] * 10, dim=1000, target=0.1).steps > few.steps
    True
    """
    _require(loss, norm, convexity, smoothness, gap, scale, target)
    found = delta(p, _noise(p, bits, dim, omega))
    moment = norm**2 * k**2 * (1 + (1 / found if found else np.inf))
    constants = {"strongly convex": (convexity, 0.0, 0.0)}.get(loss, (smoothness, gap, scale))
    steps = None if target is None else _steps(loss, moment + sampling, constants, target)
    return Convergence(loss, found, float(moment), float(sampling), constants, target, steps)


def _noise(p: ArrayLike, bits: ArrayLike | None, dim: int | None, omega: Any) -> Any:
    """(n,) relative variances of the quantisers."""
    if bits is None:
        return np.zeros(np.size(p)) if isinstance(omega, str) else omega
    if not isinstance(omega, str):
        return omega
    if dim is None:
        raise Invalid("convergence needs dim, the coordinates of a gradient, to know the noise of bits. Or give omega, (n,).")
    return variance(omega, dim, bits)


def _bound(loss: str, moment: float, constants: tuple[float, float, float], steps: Any) -> Any:
    first, gap, scale = constants
    if loss == "strongly convex":
        return 4 * moment / (first**2 * steps)
    if loss == "smooth":
        return (gap / scale + first * scale * moment / 2) / np.sqrt(steps)
    return (gap / scale + first * scale * moment * (1 + np.log(steps)) / 2) / (2 * (np.sqrt(steps + 1) - 1))


def _steps(loss: str, moment: float, constants: tuple[float, float, float], target: float) -> float:
    """The first whole number of steps at which the bound is at most the target."""
    if not np.isfinite(moment) or _bound(loss, moment, constants, np.array(MOST)) > target:
        return float("inf")
    if _bound(loss, moment, constants, np.array(1.0)) <= target:
        return 1.0
    root = brentq(lambda x: float(_bound(loss, moment, constants, np.exp(x))) - target, 0.0, np.log(MOST), xtol=1e-13)
    near = max(1.0, np.floor(np.exp(root)) - 1)
    return next(float(t) for t in near + np.arange(8) if _bound(loss, moment, constants, np.array(t)) <= target * (1 + 1e-12))


def _require(loss: Any, norm: Any, convexity: Any, smoothness: Any, gap: Any, scale: Any, target: Any) -> None:
    if loss not in ("strongly convex", "smooth", "smooth, decaying"):
        raise Invalid(f'convergence needs loss="strongly convex", "smooth" or "smooth, decaying", but got {loss!r}.')
    given = {"norm": norm, "convexity": convexity, "smoothness": smoothness, "gap": gap, "scale": scale}
    for name, value in (given | ({} if target is None else {"target": target})).items():
        if not (np.isfinite(value) and value > 0):
            raise Invalid(f"convergence needs a finite {name} > 0, but got {name}={value!r}.")
