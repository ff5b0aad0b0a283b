"""Changes to existing codes: `hybrid` and `quantize`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, lil_array

from ..errors import Invalid
from ..quantizers.base import omega_of
from ..scheme.code import Code
from ..scheme.decoders import Part, Parts, Span, parts_of
from ..scheme.noise import set_noise_gain, survivor_sets
from ..scheme.rule import Leaf, Need
from .facts import scheme
from .quantized import per_message, require_bits, require_dim, with_bits, with_codecs

SETS = 60
"""Random survivor sets from which `quantize` knows how much a code amplifies noise."""

DROWNED, AMPLIFIED = 1.0, 3.0
"""Noise over gradient, and over that of the bits without a code, above both of which `quantize` refuses."""


@scheme(
    "change",
    "hybrid(cluster(uncorrelated_mmc(3, load=3, orders=[1, 3]), times=4))",
    sent="as the code,  but the last message of worker i is Σ_j g_j over all that it holds in its cluster",
    decoded="as the code;  where workers hold all of their cluster, one such message completes it",
    papers=("ozfatura2019gradient",),
    tried=(
        "hybrid(uncorrelated_mmc(5, load=5, orders=[3, 5]))",
        "hybrid(cluster(correlated_mmc(5, load=5, order=3), times=2))",
        "hybrid(uncorrelated_mmc(8, load=4, orders=[2, 3, 4]))",
    ),
)
def hybrid(code: Code) -> Code:
    """A worker that finishes everything sends the plain sum of it instead of its last coded message ([A] section III-D).

    Where workers hold all of their cluster's data, one finished worker completes the cluster, so the result is never later
    than the code nor than repetition. Where they hold less there is no threshold: decide by span. Each worker adds up in the
    order of its tasks, which differs within a cluster, so that two such sums agree up to rounding and not to the bit.

    >>> from unstraggle.codes import uncorrelated_mmc
    >>> hybrid(uncorrelated_mmc(5, load=5, orders=[3, 5])).threshold
    3
    """
    if code.data is not None or not all(isinstance(part.decoder, Span) for part in parts_of(code.decoder)):
        raise Invalid(f"hybrid needs an exact code on raw data, but got {code.name}.")
    coef = lil_array(code.messages.coef)
    parts = [_finish(code, part, coef) for part in parts_of(code.decoder)]
    table = code.messages
    messages = table.changed(coef=csr_array(coef))
    return replace(code, name=f"hybrid({code.name})", messages=messages, decoder=Parts(tuple(parts)))


def _finish(code: Code, part: Part, coef: Any) -> Part:
    """Replace the last message of every worker in one part, in `coef` and in the part's decoder."""
    columns = np.unique(code.messages.coef[part.messages].indices).astype(np.int64)
    rows = lil_array(part.decoder.rows)
    full, all_full = [], True
    for place in _last_messages(code, part.messages):
        m = part.messages[place]
        held = _held(code, int(m), columns)
        coef[m, :], rows[place, :] = 0, 0
        coef[m, held] = rows[place, np.searchsorted(columns, held)] = 1
        full.append(int(place))
        all_full &= len(held) == len(columns)
    rule = _one_suffices(part.decoder.rule, full) if all_full else None
    return Part(part.messages, Span(csr_array(rows), rule, part.decoder.target))


def _last_messages(code: Code, messages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places, in `messages`, of each worker's last one."""
    worker, after = code.messages.worker[messages], code.messages.after[messages]
    order = np.lexsort((after, worker))
    return np.asarray(order[np.append(np.diff(worker[order]) > 0, True)])


def _held(code: Code, m: int, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part's partitions that the sender of message m has computed by then."""
    tasks, messages = code.tasks, code.messages
    mine = (tasks.worker == messages.worker[m]) & (tasks.block == messages.block[m]) & (tasks.position < messages.after[m])
    return np.intersect1d(tasks.part[mine], columns)


def _one_suffices(rule: Need | None, full: list[int]) -> Need:
    """Any one of the full messages, or the old rule on the others."""
    rest = _without(rule, frozenset(full)) if rule else None
    return Need(1, (*full, *([] if rest is None else [rest])))


def _without(child: Leaf | Need, gone: frozenset[int]) -> Any:
    """The tree without some messages; None where it can then never be met."""
    if isinstance(child, int):
        return None if child in gone else child
    if isinstance(child, tuple):
        return tuple(m for m in child if m not in gone) or None
    left = [c for c in (_without(c, gone) for c in child.of) if c is not None]
    return Need(child.count, tuple(left)) if len(left) >= child.count else None


@scheme(
    "change",
    "quantize(fractional_repetition(12, s=2), bits=4, bucket=512)",
    sent="Q(m_i),  random with  E Q(m) = m  and  E |Q(m) - m|² ≤ ω |m|²",
    decoded="g + noise = Σ_i a_i Q(m_i),  with the weights of the code",
    papers=("alistarh2017qsgd",),
    tried=(
        "quantize(fractional_repetition(6, s=2), bits=[4, 4, 4, 8, 8, 32], bucket=512)",
        "quantize(stochastic(8, p=0.3), bits=1)",
    ),
    limit="4 bits",
    note="The time is that of computing: what fewer bytes save depends on the link, see [quantisers](quantizers.md).",
)
def quantize(
    code: Code, bits: Any = None, bucket: int | None = None, *, codec: Any = None, dim: int = 10**6, force: bool = False
) -> Code:
    """The same code with messages of fewer bits: 1 for signs, 2 to 16 for levels, 32 for what is not to be quantised.

    bits: a coordinate, one number, or one for each worker or message. bucket: coordinates that share a norm, a multiple of 512;
    None: all of them. codec: instead of both, any `Codec`, or one for each worker or message; if one remembers, give one that
    has not been used. dim: coordinates of the gradient, for the check. Decoding an exact code amplifies what quantising adds,
    see `quantization_error`: where the gradient would drown in it, the code is refused, unless force=True. Repetition never
    amplifies, and approximate codes are not checked: design them for their bits with `optimally_structured`.

    >>> from unstraggle.codes import fractional_repetition
    >>> quantize(fractional_repetition(6, s=2), bits=4, bucket=512).messages.codec[0]
    QSGD(bits=4, bucket=512)
    """
    if np.iscomplexobj(code.messages.coef.data):
        raise Invalid(f"quantize needs real coefficients, but {code.name} has complex ones. Use cyclic_repetition instead.")
    if (bits is None) == (codec is None) or (codec is not None and bucket is not None):
        raise Invalid(
            f"quantize needs bits, with a bucket or without, or a codec, but got bits={bits!r}, bucket={bucket!r}, "
            f"codec={codec!r}. Use bits=8, bucket=512."
        )
    answer, given = _with_bits(code, bits, bucket) if codec is None else _with_codec(code, codec)
    how = (f", dim={dim}" if dim != 10**6 else "") + (", force=True" if force else "")
    answer = replace(answer, name=f"quantize({code.name}, {given}{how})")
    if not force:
        _require_clear(answer, require_dim("quantize", dim))
    return answer


def _with_bits(code: Code, bits: Any, bucket: int | None) -> tuple[Code, str]:
    column = require_bits("quantize", bits, code.n, len(code.messages))
    sent = column[code.messages.worker] if column.shape == (code.n,) else np.broadcast_to(column, len(code.messages))
    return with_bits(code, sent, bucket), f"bits={column.tolist()}" + (f", bucket={bucket}" if bucket else "")


def _with_codec(code: Code, codec: Any) -> tuple[Code, str]:
    return with_codecs(code, per_message("quantize", code, codec)), f"codec={codec!r}"


def quantization_error(code: Code, dim: int) -> tuple[float, float]:
    """Error that quantising adds to the decoded gradient, in units of its norm, with the code and without one.

    With: the root mean square over random survivor sets of sqrt(sum of omega_m a_m^2 |row_m|^2 / k), for weights a_m and the
    bounds omega_m of the codecs' relative variances (1 where one states none); noise gain times sqrt(omega) where all messages
    have the same codec. Without: sqrt(omega), the largest. dim: coordinates of the gradient. Partial gradients are taken to be
    orthogonal and of equal length. The steps to a target grow by about 1 + error^2.

    >>> from unstraggle.codes import uncoded
    >>> coded, plain = quantization_error(quantize(uncoded(8), bits=8), dim=1000)
    >>> round(coded, 4), round(plain, 4)
    (0.1245, 0.1245)
    """
    sizes = np.maximum(1, np.rint(dim * np.asarray(code.blocks)[code.messages.block]))
    errors = np.sqrt(_omegas(code, sizes.astype(np.int64)))
    gains = [set_noise_gain(code, got, errors) for got in islice(survivor_sets(code, SETS), SETS)]
    return float(np.sqrt(np.mean(np.square(gains)))), float(errors.max())


def _omegas(code: Code, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """(M,) what the codecs say of their noise, each asked once for each length."""
    pairs = [(id(codec), size) for codec, size in zip(code.messages.codec, sizes.tolist(), strict=True)]
    codecs = {id(codec): codec for codec in code.messages.codec}
    known = {(key, size): omega_of(codecs[key], size, "qsgd") for key, size in set(pairs)}
    return np.array([known[pair] for pair in pairs])


def _require_clear(code: Code, dim: int) -> None:
    """Refuse exact codes that would decode to more noise than gradient, through their own amplification."""
    exact = all(isinstance(part.decoder, Span) for part in parts_of(code.decoder))
    if not exact or code.messages.plain.all():
        return
    error, plain = quantization_error(code, dim)
    if error <= DROWNED or error <= AMPLIFIED * plain:
        return
    raise Invalid(
        f"quantize needs a code that decodes to less noise than gradient, but {code.name} has {error:.3g} times as much, where "
        f"its bits alone make {plain:.3g} (dim={dim}). Use fractional_repetition, which does not amplify noise, more bits, "
        "bucket=512, or force=True."
    )
