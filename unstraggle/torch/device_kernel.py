"""The Triton kernel of `device_sum`."""
# mypy: ignore-errors

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def term(at, weight, where, inside):
    """A weighted vector, in float64."""
    return weight * tl.load(at + where, mask=inside, other=0.0).to(tl.float64)


@triton.jit
def terms(a, b, c, d, e, f, g, h, weights, where, inside, COUNT: tl.constexpr):
    """The sum of COUNT weighted vectors."""
    total = term(a, tl.load(weights), where, inside)
    if COUNT > 1:
        total += term(b, tl.load(weights + 1), where, inside)
    if COUNT > 2:
        total += term(c, tl.load(weights + 2), where, inside)
    if COUNT > 3:
        total += term(d, tl.load(weights + 3), where, inside)
    if COUNT > 4:
        total += term(e, tl.load(weights + 4), where, inside)
    if COUNT > 5:
        total += term(f, tl.load(weights + 5), where, inside)
    if COUNT > 6:
        total += term(g, tl.load(weights + 6), where, inside)
    if COUNT > 7:
        total += term(h, tl.load(weights + 7), where, inside)
    return total


@triton.jit(do_not_specialize=["length", "head", "looks", "below"])
def blend(
    out,
    report,
    a,
    b,
    c,
    d,
    e,
    f,
    g,
    h,
    weights,
    length,
    head,
    looks,
    below,
    COUNT: tl.constexpr,
    FRESH: tl.constexpr,
    DIVIDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = (0 if FRESH else out) + the sum of COUNT weighted vectors, from coordinate `head` on times the last of nine weights
    and, if DIVIDED, over the number at coordinate `below`. report: 1 where a number of it is none, then the first `looks`."""
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < length
    total = terms(a, b, c, d, e, f, g, h, weights, where, inside, COUNT)
    if not FRESH:
        total += tl.load(out + where, mask=inside, other=0.0).to(tl.float64)
    factor = tl.load(weights + 8) + tl.zeros([BLOCK], tl.float64)
    if DIVIDED:
        at = below + tl.zeros([BLOCK], tl.int64)
        factor = factor / terms(a, b, c, d, e, f, g, h, weights, at, at >= 0, COUNT)
    total = tl.where(where < head, total, total * factor)
    tl.store(report + 1 + where, total, mask=where < looks)
    found = total.to(out.dtype.element_ty)
    tl.store(out + where, found, mask=inside)
    none = inside & ((found - found) != 0.0)
    if tl.max(none.to(tl.int32), axis=0) > 0:
        tl.store(report, 1.0)


compiled = {}
"""Kernels by what they were compiled for: Triton takes several times as long to find that out as to launch one."""


def launch(out, report, weights, vectors, fresh=True, head=0, looks=0, below=-1):
    """Add up to eight vectors. weights: of these, zeros, and the ninth a factor, on the device. report: where it can write."""
    rows = [*vectors, *[vectors[0]] * (8 - len(vectors))]
    flags, grid = (len(vectors), fresh, below >= 0, BLOCK), (triton.cdiv(len(out), BLOCK), 1, 1)
    elsewhere = out.device.type == "cuda" and out.device.index != torch.cuda.current_device()
    with torch.cuda.device(out.device) if elsewhere else nullcontext():
        run((out, report, *rows, weights), (len(out), head, looks, below), flags, grid)


def run(tensors, numbers, flags, grid):
    """Launch a kernel that was compiled for arguments like these, or let Triton find or compile it."""
    aligned = tuple(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    key = flags, aligned, tensors[0].dtype, tensors[0].device, numbers[0] < 2**31
    known = compiled.get(key)
    if known is not None:
        try:
            known[grid](*tensors, *numbers, *flags)
            return
        except TypeError:  # of Triton before 3.2, which wants other arguments here
            compiled[key] = None
    found = blend[grid](*tensors, *numbers, *flags)
    compiled.setdefault(key, found)
