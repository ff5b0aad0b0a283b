"""What the approximate schemes share: straggle probabilities, prices of workers, and codes from a table of coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ..checks import require_workers
from ..errors import Invalid
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Decoder, Fixed, LeastSquares, OneStep

Decode = Literal["fixed", "least_squares", "one_step"]
Probabilities = float | Sequence[float] | NDArray[np.float64]


def require_probabilities(scheme: str, n: int, p: ArrayLike, certain: bool = True) -> NDArray[np.float64]:
    """(n,) straggle probabilities from one for all or one for each worker; p = 1 only where `certain`.

    >>> require_probabilities("example", 3, 0.25)
    array([0.25, 0.25, 0.25])
    """
    values = numbers(scheme, "p", p, n)
    wrong = values[~((values >= 0) & (values <= 1))]
    if len(wrong):
        raise Invalid(
            f"{scheme} needs straggle probabilities 0 <= p <= 1, but got p={wrong[0]}. Give the share of late rounds."
        )
    if not certain and (values == 1).any():
        raise Invalid(
            f"{scheme} needs p < 1, but worker {int(values.argmax())} has p=1 and is never heard. "
            "Leave it out, or use optimally_structured, which gives it nothing."
        )
    return values


def require_omega(scheme: str, n: int, omega: ArrayLike) -> NDArray[np.float64]:
    """(n,) relative quantiser variances."""
    values = numbers(scheme, "omega", omega, n)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise Invalid(
            f"{scheme} needs relative quantiser variances omega >= 0, but got {omega!r}. Without a quantiser, omega=0."
        )
    return values


def require_gamma(scheme: str, gamma: Any) -> float:
    """The factor of the quantiser variance in the design."""
    if isinstance(gamma, str) or not np.isfinite(gamma) or gamma < 0:
        raise Invalid(f"{scheme} needs a finite gamma >= 0, but got gamma={gamma!r}. Use 1 for the plain design.")
    return float(gamma)


def numbers(scheme: str, name: str, values: ArrayLike, n: int) -> NDArray[np.float64]:
    """(n,) numbers from one for all or one for each worker."""
    try:
        column = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise Invalid(f"{scheme} needs {name} as a number or {n} numbers, but got {name}={values!r}.") from None
    if column.shape not in ((), (n,)):
        raise Invalid(f"{scheme} needs {name} for all or for each of the {n} workers, but got shape {column.shape}.")
    return np.array(np.broadcast_to(column, n))


def gains(p: NDArray[np.float64], omega: NDArray[np.float64], gamma: float = 1.0) -> NDArray[np.float64]:
    """(n,) 1 / delta_i = (1 - p_i) / (p_i + gamma omega_i), what a worker adds to Delta ([C] Theorem 1, equation 33).

    0 for a worker that is never heard, infinite for one that never errs.

    >>> gains(np.array([0.5, 1.0, 0.0]), np.zeros(3))
    array([ 1.,  0., inf])
    """
    price = p + gamma * omega
    with np.errstate(over="ignore"):
        return np.where(p == 1, 0.0, np.divide(1 - p, price, out=np.full(len(p), np.inf), where=price > 0))


def row_sums(p: NDArray[np.float64], omega: NDArray[np.float64], gamma: float, k: float) -> NDArray[np.float64]:
    """(n,) the optimal W_i = k / (delta_i Delta); workers that never err share everything equally ([C] Theorem 1).

    >>> row_sums(np.array([0.5, 1.0, 0.5]), np.zeros(3), 1.0, 4)
    array([2., 0., 2.])
    """
    share = gains(p, omega, gamma)
    perfect = np.isinf(share)
    share = perfect.astype(float) if perfect.any() else share
    if share.sum() == 0:
        raise Invalid("No design is unbiased when no worker is ever heard: some p must be below 1. Raise the deadline.")
    return np.asarray(k * (share / share.sum()))


def table_code(name: str, n: int, coef: Any, decode: Decode, weights: ArrayLike = 1.0) -> Code:
    """One message per worker: row i of coef (n, k) once its partitions are done; workers with an empty row stay idle.

    weights: (n,) or one for all, the fixed decoder's; for "one_step" the scale.
    """
    rows = csr_array(coef)
    rows.eliminate_zeros()
    rows.sort_indices()
    loads = np.diff(rows.indptr)
    sender = np.flatnonzero(loads)
    if not len(sender):
        raise Invalid(f"{name}: no worker computes anything. Raise the load, or try another seed.")
    tasks = Tasks(np.repeat(np.arange(n), loads), rows.indices, work=n / rows.shape[1])
    messages = Messages(sender, loads[sender], rows[sender])
    decoder: Decoder = LeastSquares(messages.coef)
    if decode == "one_step":
        decoder = OneStep(messages.coef, scale=float(np.asarray(weights)))
    if decode == "fixed":
        decoder = Fixed(messages.coef, fixed=np.broadcast_to(np.asarray(weights, dtype=float), n)[sender])
    return Code(name, n, tasks, messages, decoder)


def require_decode(scheme: str, decode: str, *known: str) -> None:
    """One of the ways to decode that a scheme has."""
    if decode not in known:
        raise Invalid(f"{scheme} needs decode to be one of {', '.join(map(repr, known))}, but got decode={decode!r}.")


def listed(values: ArrayLike) -> str:
    """Numbers as an expression reads them.

    >>> listed(np.array([0.5, 1.0])), listed(0.25)
    ('[0.5, 1.0]', '0.25')
    """
    return str(np.asarray(values, dtype=float).tolist())


def require_size(scheme: str, n: Any) -> int:
    """A number of workers for which a table of coefficients is reasonable."""
    workers = require_workers(scheme, n)
    if workers > 10**5:
        raise Invalid(f"{scheme} needs n <= 100000 workers, but got n={n}. Use clusters: cluster({scheme}(...), times=...).")
    return workers
