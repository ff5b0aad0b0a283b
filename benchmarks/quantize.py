"""Quantisers against copying the same vector, and against what is written without kernels: ratios within one run."""

import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle import codes
from unstraggle.app.bench.timing import Timed, best_times
from unstraggle.quantizers import QSGD, Identity, Sign, read, warmup
from unstraggle.quantizers.cpu import Source, aligned, grid, pack
from unstraggle.runtime.gather import Gather
from unstraggle.runtime.message import Message

from .common import save

LENGTHS = {10**6: 100, 10**7: 20, 10**8: 10}
"""Coordinates, and how often everything is repeated."""
BITS = (2, 3, 4, 5, 6, 7, 8, 12, 16)
MESSAGES = 4
RIVAL_REPEATS = {10**6: 20, 10**7: 5, 10**8: 4}
"""Rivals need up to 100 times as long: fewer repeats."""


def ratios(runs: Timed, repeats: int) -> dict[str, float]:
    """Time of the run named copy, over that of each other."""
    best = best_times(runs, repeats)
    return {name: round(best["copy"] / seconds, 3) for name, seconds in best.items() if name != "copy"}


def against_copy(length: int, repeats: int) -> list[dict[str, Any]]:
    """One thread, memory used again. 1.0 means: as long as numpy.copyto of the float32 vector takes."""
    x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    out, total = np.zeros_like(x), np.zeros_like(x)
    rows = []
    for bits in BITS:
        row = ratios({"copy": partial(np.copyto, out, x), **quantizing(bits, x, total)}, repeats)
        row["accumulate_4_per_message"] = round(MESSAGES * row.pop("accumulate_4"), 3)
        rows.append({"length": length, "bits": bits, **row})
        print(f"L={length:.0e} b={bits:2}  " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in row.items()), flush=True)
    others = ratios({"copy": partial(np.copyto, out, x), **unquantized(x, total)}, repeats)
    print(f"L={length:.0e}  " + "  ".join(f"{name} {ratio:.2f}" for name, ratio in others.items()), flush=True)
    return [*rows, {"length": length, **others}]


def quantizing(bits: int, x: NDArray[np.float32], total: NDArray[np.float32]) -> Timed:
    plain, bucketed = QSGD(bits), QSGD(bits, bucket=512)
    payloads = [plain.encode(x, seed) for seed in range(MESSAGES)]
    messages = [read(payload) for payload in payloads]
    room = aligned(bucketed.size(len(x)))
    source, steps = Source(x), np.zeros(1, np.float32)
    words = room[plain.format.start(len(x)) : plain.size(len(x))]
    _, scale, factor = grid(plain.format, source)
    return {
        "quantise_pack": partial(pack, plain.format, source, 1, steps, words, scale, factor),
        "encode": partial(plain.encode, x, 1, out=room),
        "encode_bucket_512": partial(bucketed.encode, x, 1, out=room),
        "check": partial(read, payloads[0]),
        "accumulate": partial(plain.accumulate, total, messages[0], 1e-3),
        "accumulate_4": partial(plain.accumulate, total, messages, [1e-3] * MESSAGES),
        "check_and_accumulate": partial(plain.accumulate, total, payloads[0], 1e-3),
    }


def unquantized(x: NDArray[np.float32], total: NDArray[np.float32]) -> Timed:
    sign, identity = Sign(), Identity()
    bit, whole = sign.encode(x, 0), identity.encode(x, 0)
    room = aligned(identity.size(len(x)))
    return {
        "norm": partial(grid, sign.format, Source(x)),
        "sign_encode": partial(sign.encode, x, 1, out=room),
        "sign_accumulate": partial(sign.accumulate, total, read(bit), 1e-3),
        "identity_encode": partial(identity.encode, x, 1, out=room),
        "identity_accumulate": partial(identity.accumulate, total, read(whole), 1e-3),
        "crc32_of_float32": partial(zlib.crc32, whole),
    }


def gathering(length: int = 2 * 10**6, bits: int = 8, workers: int = 8, repeats: int = 40) -> list[dict[str, Any]]:
    """Eight messages through the master's gather, which checks each against the code as it comes, against bare accumulate.

    Both check and both write to new memory. Where weights are known in advance, the gather adds sixteen at a time while others
    are still on their way; else all at the end.
    """
    codec, rng = QSGD(bits), np.random.default_rng(0)
    payloads = [codec.encode(rng.standard_normal(length, dtype=np.float32), seed) for seed in range(workers)]
    rows = []
    for code in (codes.uncoded(workers), codes.fractional_repetition(workers, s=1)):
        sent = codes.quantize(code, bits=bits)
        weights = sent.decoder.weights(np.ones(workers, dtype=bool))
        runs = {
            "gather": partial(_gathered, Gather(sent, length, np.dtype(np.float32)), payloads, weights),
            "accumulate": lambda row=weights[0]: codec.accumulate(np.zeros(length, np.float32), payloads, row),
        }
        best = best_times(runs, repeats)
        ratio = round(best["gather"] / best["accumulate"], 3)
        print(f"{sent.name}: gather {1e3 * best['gather']:.2f} ms, {ratio} x accumulate", flush=True)
        rows.append({"code": sent.name, "length": length, "gather_over_accumulate": ratio, "seconds": round(best["gather"], 6)})
    return rows


def _gathered(gather: Gather, payloads: list[NDArray[np.uint8]], weights: NDArray[Any]) -> NDArray[Any]:
    gather.clear()
    for m, payload in enumerate(payloads):
        message = Message(m, m, 0, 0.0, payload, 0)
        gather.check(message)
        gather.add([message])
    return gather.finish(weights)


def threads(length: int = 10**8, repeats: int = 5) -> dict[str, float]:
    """Two threads against one, wall-clock."""
    x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    quantizer, total = QSGD(4), np.zeros_like(x)
    room, message = aligned(quantizer.size(length)), read(quantizer.encode(x, 0))
    result = {}
    for name, run in {
        "encode": partial(quantizer.encode, x, 1, out=room),
        "accumulate": partial(quantizer.accumulate, total, message, 1.0),
    }.items():
        one, two = (min(_wall(partial(run, threads=count)) for _ in range(repeats)) for count in (1, 2))
        result[name] = round(one / two, 2)
    return result


def _wall(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def numpy_qsgd(x: NDArray[np.float32], bits: int, rng: np.random.Generator) -> tuple[np.float32, NDArray[np.uint8]]:
    """The formula as one writes it in NumPy: one norm, fields packed by packbits."""
    levels = 2 ** (bits - 1) - 1
    norm = np.linalg.norm(x)
    scaled = np.abs(x) / norm * levels
    level = np.floor(scaled)
    level += rng.random(len(x), dtype=np.float32) < scaled - level
    codes = level.astype(np.uint16) | (x < 0).astype(np.uint16) << (bits - 1)
    digits = codes[:, None] >> np.arange(bits - 1, -1, -1, dtype=np.uint16) & 1
    return norm, np.packbits(digits.astype(np.uint8))


def numpy_add(norm: np.float32, packed: NDArray[np.uint8], bits: int, out: NDArray[np.float32]) -> None:
    levels = 2 ** (bits - 1) - 1
    digits = np.unpackbits(packed, count=len(out) * bits).reshape(-1, bits)
    codes = digits[:, 1:] @ (1 << np.arange(bits - 2, -1, -1)).astype(np.uint16)
    out += norm / levels * np.where(digits[:, 0], -1, 1) * codes


def torch_qsgd(x: Any, levels: int) -> Any:
    """Level by level in tensor operations, int8 and not packed, as compression frameworks for PyTorch do it."""
    import torch

    norm = x.norm()
    scaled = levels / norm * x.abs()
    floor = scaled.floor()
    level = floor + (torch.rand_like(x) < scaled - floor)
    return norm, (level * x.sign()).to(torch.int8)


def rivals(length: int) -> list[dict[str, Any]]:
    """Seconds of ours and of the rivals, one thread, one norm, new memory for every result on both sides."""
    x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    rows = [_rival("numpy, packbits", 4, x, *_numpy_runs(x, 4))]
    try:
        import torch
    except ImportError:
        print("torch is not installed: no comparison with tensor operations")
        return rows
    torch.set_num_threads(1)
    return [*rows, _rival(f"torch {torch.__version__}, int8 unpacked", 8, x, *_torch_runs(torch.from_numpy(x), 127))]


def _numpy_runs(x: NDArray[np.float32], bits: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    rng, total = np.random.default_rng(0), np.zeros_like(x)
    norm, packed = numpy_qsgd(x, bits, rng)
    return partial(numpy_qsgd, x, bits, rng), partial(numpy_add, norm, packed, bits, total)


def _torch_runs(x: Any, levels: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    norm, signed = torch_qsgd(x, levels)
    total = x.new_zeros(len(x))
    return partial(torch_qsgd, x, levels), lambda: total.add_(norm / levels * signed.float())


def _own_runs(x: NDArray[np.float32], bits: int) -> Timed:
    """Ours checks every payload (lengths, CRC and checksum); rivals check none, so that both forms are shown."""
    quantizer, total = QSGD(bits), np.zeros_like(x)
    payload = quantizer.encode(x, 0)
    return {
        "encode": partial(quantizer.encode, x, 0),
        "accumulate": partial(quantizer.accumulate, total, read(payload), 1.0),
        "check_and_accumulate": partial(quantizer.accumulate, total, payload, 1.0),
    }


def _rival(name: str, bits: int, x: NDArray[np.float32], encode: Callable[[], Any], add: Callable[[], Any]) -> dict[str, Any]:
    """Each by itself and not in turns: gigabytes that one gives back to the system make the next one's new memory slow."""
    own = _own_runs(x, bits)
    runs = {"rival_encode": encode, "rival_accumulate": add, **own}
    best = {key: best_times({key: run}, RIVAL_REPEATS[len(x)])[key] for key, run in runs.items()}
    faster = {key: round(best["rival_encode" if key == "encode" else "rival_accumulate"] / best[key], 1) for key in own}
    print(f"{name}, L={len(x):.0e}, b={bits}: " + ", ".join(f"{key} {value} x" for key, value in faster.items()), flush=True)
    return {"rival": name, "length": len(x), "bits": bits, "times_faster": faster} | {k: round(v, 6) for k, v in best.items()}


def main(lengths: dict[int, int] | None = None) -> None:
    warmup(1, *BITS, 32)
    rows = [row for length, repeats in (lengths or LENGTHS).items() for row in against_copy(length, repeats)]
    others = [row for length in lengths or LENGTHS for row in rivals(length)]
    what = "time of numpy.copyto of the float32 vector over time of the operation; one thread, memory used again"
    found = {"against_copy": rows, "rivals": others, "two_threads_over_one": threads(), "gathering": gathering()}
    save("quantize", {"ratio": what, **found})
