"""A codec that the library does not have: of each message only the largest coordinates are sent.

python examples/own_codec.py
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import unstraggle as us
from unstraggle.quantizers import ErrorFeedback
from unstraggle.testing import check_codec

PAIR = np.dtype([("place", "<u4"), ("value", "<f4")])


@dataclass(frozen=True)
class TopK:
    """The largest coordinates by size, each as its place and its value; the others count as zero.

    share: of the coordinates that are sent. What is not sent is lost, and always the same sort of it: put it into
    `ErrorFeedback`, which sends it later.
    """

    share: float = 0.05

    @property
    def bits(self) -> int:
        return math.ceil(8 * PAIR.itemsize * self.share)

    def size(self, length: int) -> int:
        return PAIR.itemsize * self._kept(length)

    def encode(self, x: Any, seed: int) -> bytes:
        vector, kept = np.asarray(x, np.float32), self._kept(len(x))
        if not np.isfinite(vector).all():
            raise us.Invalid("TopK needs finite coordinates. Skip the step, or clip x.")
        pairs = np.empty(kept, PAIR)
        pairs["place"] = np.sort(np.argsort(-np.abs(vector), kind="stable")[:kept])
        pairs["value"] = vector[pairs["place"]]
        return pairs.tobytes()

    def check(self, payload: Any, length: int) -> Any:
        """Places and values. Bytes come from outside: nothing is believed that could write past the sum."""
        data = np.frombuffer(payload, np.uint8)
        if len(data) != self.size(length):
            raise us.Invalid(f"TopK needs {self.size(length)} bytes for {length} coordinates, but got {len(data)}.")
        pairs = data.view(PAIR)
        places, values = pairs["place"].astype(np.int64), pairs["value"]
        if not (np.diff(places) > 0).all() or (places >= length).any() or not np.isfinite(values).all():
            raise us.Invalid("TopK needs places in order, below the length, and finite values. The payload was changed.")
        return places, values

    def accumulate(self, out: Any, payloads: Sequence[Any], weights: Sequence[float]) -> Any:
        for (places, values), weight in zip(payloads, weights, strict=True):
            out[places] += np.float32(weight) * values
        return out

    def _kept(self, length: int) -> int:
        return math.ceil(self.share * length)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    args = options.parse_args()

    print(check_codec(TopK()))
    code = us.codes.quantize(us.codes.fractional_repetition(4, s=1), codec=ErrorFeedback(TopK()))
    problem = us.problems.Logistic.random(code, dim=2000, samples=800)
    params = np.zeros(2000)
    with us.Master(code, us.engines.Local(problem)) as master:
        for step in range(args.steps):
            estimate = master.gradient(params, step)
            params -= 0.002 * estimate.gradient
            if step in (0, args.steps - 1):
                sent = estimate.bytes // estimate.messages
                print(f"step {step}: loss {problem.loss(params):.4f}, {sent} bytes per message instead of {8 * 2000}")


if __name__ == "__main__":
    main()
