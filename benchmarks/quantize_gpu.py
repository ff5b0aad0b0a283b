"""Quantisers on a GPU against the traffic that they cannot avoid, and against tensor operations: ratios within one run.

Run it on a machine with CUDA: python -m benchmarks.quantize_gpu [RESULT.json]
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from unstraggle.quantizers import QSGD, cuda, read, reference
from unstraggle.quantizers import cuda_launch as launch
from unstraggle.quantizers.cpu import key_of

from .common import RESULTS, of_device
from .quantize import torch_qsgd

BITS, LENGTHS, MESSAGES = (2, 3, 4, 8), (10**8, 10**9), 4
CHECKED = 1_000_003
RATIO = (
    "bytes that must be read and written, over the bytes that torch's copy_ of the float32 vector reads and writes in the same "
    "time, on the same device and in the same run; 1.0 means: as fast as memory goes"
)
Run = Callable[[], Any]


def seconds(run: Run) -> float:
    return float(triton.testing.do_bench(run, warmup=20, rep=120, return_mode="median")) / 1e3


def check(bits: int) -> int:
    """Payloads and decoded vectors equal the reference. Gives how many were compared."""
    x = np.random.default_rng(bits).standard_normal(CHECKED).astype(np.float32)
    for quantizer in (QSGD(bits), QSGD(bits, bucket=512)):
        found = read(quantizer.encode(torch.from_numpy(x).cuda(), seed=bits))
        steps, words = reference.encode(x, bits, quantizer.format)
        assert np.array_equal(found.steps.cpu().numpy(), steps), quantizer
        assert np.array_equal(found.words.cpu().numpy().view(np.uint32), words), quantizer
        expected = reference.decode(steps, words, CHECKED, quantizer.format)
        assert np.array_equal(quantizer.decode(found).cpu().numpy(), expected), quantizer
        total = quantizer.accumulate(torch.zeros(CHECKED, device="cuda"), [found] * MESSAGES, [1.0] * MESSAGES)
        assert np.array_equal(total.cpu().numpy(), sum([expected] * MESSAGES, np.zeros_like(x))), quantizer
    return 2


def work(bits: int, x: Any, total: Any) -> dict[str, tuple[float, Run]]:
    """Bytes per coordinate that must move, and what is timed: kernels with all their launches, then the public methods."""
    plain, bucketed, packed = QSGD(bits), QSGD(bits, bucket=512), bits / 8
    payload = plain.encode(x, seed=1)
    found, format = read(payload), plain.format
    messages = [found] + [cuda.DevicePayload(format, len(x), 1, payload.clone(), found.most) for _ in range(MESSAGES - 1)]
    blocks = cuda.DevicePayload(bucketed.format, len(x), 1, bucketed.encode(x, seed=1))
    key = {"key": launch._signed(key_of(1)), "words": found.words, "count": len(found.words)}
    sums = {"sums": launch._no_sums(x), "slots": launch.SLOTS}
    scales, weights = launch.norms(format, x, found.steps.clone()), np.full(MESSAGES, 1e-3)
    return {
        "quantise_pack": (4 + packed, partial(launch.pack, format, x, scales, **key, **sums)),
        "norm_quantise_pack": (8 + packed, partial(launch.write, found, x)),
        "norm_quantise_pack_bucket_512": (4 + packed + 4 / 512, partial(launch.write, blocks, x)),
        "decode_add": (8 + packed, partial(launch.add, [found], weights[:1], total, False)),
        "decode_add_bucket_512": (8 + packed + 4 / 512, partial(launch.add, [blocks], weights[:1], total, False)),
        "decode_add_4": (8 + MESSAGES * packed, partial(launch.add, messages, weights, total, False)),
        "check": (packed, partial(launch.checksums, found.words, bits, key_of(1))),
        "encode": (8 + packed, partial(plain.encode, x, 1, out=payload)),
        "check_and_accumulate": (8 + 2 * packed, partial(plain.accumulate, total, [payload], [1e-3])),
    }


def speed(length: int) -> list[dict[str, Any]]:
    x, total = torch.randn(length, device="cuda"), torch.zeros(length, device="cuda")
    rows = []
    for bits in BITS:
        copy = seconds(partial(torch.empty_like(x).copy_, x))
        row: dict[str, Any] = {"length": length, "bits": bits, "copy_tb_per_s": round(8 * length / copy / 1e12, 3)}
        times = {name: (traffic, seconds(run)) for name, (traffic, run) in work(bits, x, total).items()}
        row["of_ceiling"] = {name: round(traffic / 8 * copy / taken, 3) for name, (traffic, taken) in times.items()}
        row["milliseconds"] = {"copy": round(1e3 * copy, 4)} | {name: round(1e3 * t, 4) for name, (_, t) in times.items()}
        rows.append(row)
        print(
            f"L={length:.0e} b={bits} " + "  ".join(f"{name} {part:.2f}" for name, part in row["of_ceiling"].items()),
            flush=True,
        )
    return rows


def rival(length: int, bits: int = 8) -> dict[str, Any]:
    """Milliseconds of ours and of tensor operations, one norm, new memory for every result on both sides."""
    x, total, quantizer = torch.randn(length, device="cuda"), torch.zeros(length, device="cuda"), QSGD(bits)
    levels = quantizer.format.levels
    (norm, level), payload = torch_qsgd(x, levels), quantizer.encode(x, 0)
    runs: dict[str, Run] = {
        "rival_encode": partial(torch_qsgd, x, levels),
        "rival_accumulate": lambda: total.add_(norm / levels * level.float()),
        "encode": partial(quantizer.encode, x, 0),
        "accumulate": partial(quantizer.accumulate, total, [payload], [1e-3]),
    }
    taken = {name: seconds(run) for name, run in runs.items()}
    faster = {name: round(taken[f"rival_{name}"] / taken[name], 1) for name in ("encode", "accumulate")}
    print(f"tensor operations, L={length:.0e}: encode {faster['encode']} x, check and accumulate {faster['accumulate']} x")
    name = f"torch {torch.__version__}, int8 unpacked and unchecked"
    times = {name: round(1e3 * value, 4) for name, value in taken.items()}
    return {"rival": name, "length": length, "bits": bits, "times_faster": faster, "milliseconds": times}


def main(path: Path = RESULTS / "quantize_gpu.json") -> None:
    about = {
        **of_device("quantize_gpu", packages=("triton",)),
        "ratio": RATIO,
        "payloads_equal_to_reference": sum(map(check, BITS)),
    }
    rows = [row for length in LENGTHS for row in speed(length)]
    result = about | {"against_traffic": rows, "rivals": [rival(length) for length in LENGTHS]}
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path.name} written")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
