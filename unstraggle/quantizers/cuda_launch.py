"""Launching the Triton kernels on tensors."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import cuda_kernels
from .cpu import key_of
from .layout import BLOCK, FULL, HUGE, LANES, TINY, Format, blocks_of

torch: Any = import_module("torch")
kernels: Any = cuda_kernels


class Tile(NamedTuple):
    """Blocks that a program takes, and warps that it runs on."""

    blocks: int
    warps: int


PACK = NORM_PACK = NORM = Tile(4, 1)
CHECK = Tile(32, 4)
ADD = Tile(1, 1)
SLOTS = 256
"""Places for checksums, so that programs do not wait for each other."""
LEAVES, LEVELS, THREADS = 64, 6, 32
"""Sums that a thread of the tree adds, its height, and threads of a program."""
PIECE = 1 << 24
"""Coordinates of unusual buckets that are gathered at a time."""


def write(payload: Any, x: Any) -> Any:
    """Write steps and words of x, a step below zero where `mend` is needed. Gives the checksums of the words."""
    format, blocks, sums = payload.format, blocks_of(len(x)), _no_sums(x)
    key = {
        "key": _signed(key_of(payload.seed)),
        "words": payload.words,
        "count": len(payload.words),
        "sums": sums,
        "slots": SLOTS,
    }
    if format.bucket == BLOCK:
        spacing, span, _ = map(float, format.numbers)
        grid = {"spacing": spacing, "span": span, "steps": payload.steps, "blocks": blocks}
        _launch(kernels.block_kernel, NORM_PACK, blocks, len(x) // BLOCK, x, length=len(x), **grid, **key, BITS=format.bits)
    elif blocks:
        scales = norms(format, x, payload.steps)
        pack(format, x, scales, **key)
    return sums


def pack(format: Format, x: Any, scales: Any, **key: Any) -> None:
    """Quantise and pack with known scales."""
    blocks, per = blocks_of(len(x)), format.bucket // BLOCK
    grid = {"scales": scales, "per": per, "SPREAD": min(per, 2)}
    _launch(kernels.pack_kernel, PACK, blocks, len(x) // BLOCK, x, length=len(x), **grid, **key, BITS=format.bits)


def norms(format: Format, x: Any, steps: Any) -> Any:
    """Write the steps of all buckets. Gives their scales."""
    buckets, scales = len(steps), torch.empty_like(steps)
    total, lanes = _squares(format, x, buckets)
    spacing, span, _ = map(float, format.numbers)
    grid = (-(-buckets // THREADS),)
    kernels.grid_kernel[grid](total, lanes, buckets, spacing, span, steps, scales, THREADS=THREADS)
    return scales


def _squares(format: Format, x: Any, buckets: int) -> tuple[Any, Any]:
    """(buckets,) sums of squares, and lanes of blocks that are not zero."""
    blocks = blocks_of(len(x))
    per = format.bucket // BLOCK or blocks
    totals = torch.zeros(buckets * per, dtype=torch.float32, device=x.device)
    lanes = torch.zeros_like(totals, dtype=torch.int32)
    numbers = {"length": len(x), "totals": totals, "lanes": lanes, "blocks": blocks}
    _launch(kernels.square_kernel, NORM, blocks, len(x) // BLOCK, x, **numbers)
    return _tree(totals, lanes, buckets, per)


def _tree(values: Any, lanes: Any, rows: int, width: int) -> tuple[Any, Any]:
    """(rows,) float64 sums of (rows, width), neighbours first, and sums of lanes."""
    while width > 1 or values.dtype != torch.float64:
        parts = -(-width // LEAVES)
        sums = torch.empty(rows * parts, dtype=torch.float64, device=values.device)
        counts, grid = torch.empty_like(sums, dtype=torch.int32), (-(-rows * parts // THREADS),)
        constants = {"LEAVES": LEAVES, "LEVELS": LEVELS, "THREADS": THREADS, "num_warps": 1, "enable_fp_fusion": False}
        kernels.tree_kernel[grid](values, lanes, rows, width, parts, sums, counts, **constants)
        values, lanes, width = sums, counts, parts
    return values, lanes


def mend(payload: Any, x: Any) -> bool:
    """Write the buckets that `write` left out. False if there is but one bucket, or one is not finite."""
    format, length = payload.format, payload.length
    if not format.bucket:
        return False
    rare = (payload.steps < 0).nonzero().view(-1)
    for which in rare.split(max(1, PIECE // format.bucket)):
        parts = _gathered(x, which, format.bucket)
        step, scale, factor = _rare_grids(format, parts)
        if not bool(torch.isfinite(step).all()):
            return False
        scaled = (parts.to(torch.float64) * factor[:, None]).to(torch.float32)
        payload.steps[which] = step
        blocks, per, words = parts.numel() // BLOCK, format.bucket // BLOCK, payload.words
        numbers = scaled, which, scale, per, length, _signed(key_of(payload.seed)), words, len(words), blocks
        kernels.mend_kernel[(-(-blocks // PACK.blocks),)](*numbers, BITS=format.bits, **_options(PACK))
    return True


def _gathered(x: Any, which: Any, bucket: int) -> Any:
    """(buckets, bucket) coordinates, zeros behind the end."""
    at = which[:, None] * bucket + torch.arange(bucket, device=x.device)
    return torch.where(at < len(x), x[at.clamp(max=len(x) - 1)], 0.0)


def _rare_grids(format: Format, parts: Any) -> tuple[Any, Any, Any]:
    """Steps, scales and factors of buckets, as `reference.grid_of` makes them; not finite where coordinates are not."""
    spacing, span, unit = map(float, format.numbers)
    top, level = parts.abs().amax(dim=1).to(torch.float64), FULL / unit
    exact = (top / level).to(torch.float32)
    single = ((parts != 0).sum(dim=1) == 1) & (exact.to(torch.float64) * level == top) & (top < HUGE)
    total = _squares(format, parts.view(-1), len(parts))[0].to(torch.float32)
    usual, norm = (total >= TINY) & (total < np.inf), _root(total)
    step, scale, factor = _rescaled_grids(format, parts, top)
    step = torch.where(usual, norm * spacing, step)
    scale = torch.where(usual, _quotient(span, norm), scale)
    factor = torch.where(usual, 1.0, factor)
    return torch.where(single, exact, step), torch.where(single, FULL, scale), torch.where(single, 1 / top, factor)


def _rescaled_grids(format: Format, parts: Any, top: Any) -> tuple[Any, Any, Any]:
    spacing, _, unit = map(float, format.numbers)
    exponent = torch.frexp(top)[1].to(torch.int64)
    factor = (1023 - exponent << 52).view(torch.float64)
    scaled = (parts.to(torch.float64) * factor[:, None]).to(torch.float32)
    norm = _root(_squares(format, scaled.view(-1), len(parts))[0].to(torch.float32))
    wide = (norm * spacing).to(torch.float64) / factor
    step = wide.to(torch.float32)
    step = torch.where(step < wide, torch.nextafter(step, torch.full_like(step, np.inf)), step)
    return step, _quotient(unit, (step * factor).to(torch.float32)), factor


def _root(values: Any) -> Any:
    """Square roots, rounded correctly: float32 ones of torch are not on every processor."""
    return values.to(torch.float64).sqrt().to(torch.float32)


def _quotient(number: float, values: Any) -> Any:
    """number / values, rounded correctly: torch multiplies by the reciprocal, which rounds twice."""
    wide = values.to(torch.float64)
    return (torch.full_like(wide, number) / wide).to(torch.float32)


def checksums(words: Any, bits: int, key: np.uint64, sums: Any = None) -> Any:
    """The checksums of words, lane by lane, in slots; added to those that are given."""
    sums, size = _no_sums(words) if sums is None else sums, LANES * bits
    numbers = {"count": len(words), "key": _signed(key), "sums": sums, "slots": SLOTS}
    _launch(kernels.check_kernel, CHECK, -(-len(words) // size), len(words) // size, words, **numbers, BITS=bits)
    return sums


def add(found: list[Any], weights: NDArray[np.float64], out: Any, fresh: bool) -> None:
    """Add payloads of one format to out, or write their sum there."""
    format, length = found[0].format, len(out)
    steps = torch.stack([payload.steps for payload in found], dim=1).to(torch.float64)
    factors = (steps * torch.tensor(weights, dtype=torch.float64).to(out.device, non_blocking=True)).to(torch.float32)
    per, words = format.bucket // BLOCK, tuple(payload.words for payload in found)
    numbers = {"length": length, "per": per, "words": words, "factors": factors}
    constants = {"SPREAD": min(per, 2), "FRESH": fresh, "MESSAGES": len(found), "BITS": format.bits}
    _launch(kernels.add_kernel, ADD, blocks_of(length), length // BLOCK, out, **numbers, **constants)


def _launch(kernel: Any, tile: Tile, blocks: int, whole: int, source: Any, /, **arguments: Any) -> None:
    """Programs whose blocks are all whole, and then the others, with masks."""
    middle = whole // tile.blocks * tile.blocks
    for first, last in ((0, middle), (middle, blocks)):
        if first < last:
            grid = (-(-(last - first) // tile.blocks),)
            kernel[grid](source, first=first, **arguments, WHOLE=last == middle, **_options(tile))


def _options(tile: Tile) -> dict[str, Any]:
    return {"BLOCKS": tile.blocks, "num_warps": tile.warps, "enable_fp_fusion": False}


def _no_sums(like: Any) -> Any:
    return torch.zeros((SLOTS, 2 * LANES), dtype=torch.int32, device=like.device)


def _signed(key: np.uint64) -> int:
    """A key as a signed number, which kernels take."""
    return int(key.astype(np.int64))
