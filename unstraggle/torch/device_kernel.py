"""The Triton kernel of `device_sum`."""
# mypy: ignore-errors

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def term(at, weight, where, inside):
    """A weighted vector, in float64."""
    return weight * tl.load(at + where, mask=inside, other=0.0).to(tl.float64)


@triton.jit(do_not_specialize=["length"])
def blend(out, bad, a, b, c, d, e, f, g, h, weights, length, COUNT: tl.constexpr, FRESH: tl.constexpr, BLOCK: tl.constexpr):
    """out = (0 if FRESH else out) + the sum of COUNT weighted vectors; bad = 1 where a number of it is none."""
    where = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = where < length
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
    if not FRESH:
        total += tl.load(out + where, mask=inside, other=0.0).to(tl.float64)
    found = total.to(out.dtype.element_ty)
    tl.store(out + where, found, mask=inside)
    none = inside & ((found - found) != 0.0)
    if tl.max(none.to(tl.int32), axis=0) > 0:
        tl.store(bad, 1)


def launch(out, weights, vectors, fresh):
    """Add up to eight vectors; whether all is finite, as a tensor on the device."""
    bad = torch.zeros(1, dtype=torch.int32, device=out.device)
    rows = [*vectors, *[vectors[0]] * (8 - len(vectors))]
    numbers = torch.tensor(list(weights), dtype=torch.float64).to(out.device, non_blocking=True)
    with torch.cuda.device(out.device) if out.device.type == "cuda" else torch.no_grad():
        blend[(triton.cdiv(len(out), BLOCK),)](out, bad, *rows, numbers, len(out), len(vectors), fresh, BLOCK)
    return bad == 0
