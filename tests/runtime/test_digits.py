"""What is called exact has its digits: rounding that decoding amplifies counts against it."""

import numpy as np
import pytest

from unstraggle import Invalid, Master, Recovered, Round, State, Terms, codes, simulate
from unstraggle.blocks import block_slices
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential
from unstraggle.runtime.events import Arrived
from unstraggle.runtime.gather import Gather
from unstraggle.runtime.message import Message
from unstraggle.runtime.payload import number_type, pack
from unstraggle.runtime.worker import work
from unstraggle.scheme.noise import survivor_sets
from unstraggle.testing import check_code

from ..examples import EXAMPLES, example

DIM = 48
ALLOWED = {"f4": 1e-3, "f8": 1e-6}
HARD = (
    "reed_solomon(40, s=20)",
    "reed_solomon(60, s=30)",
    "reed_solomon(30, s=10)",
    "cyclic_repetition(60, s=30)",
    "cyclic_repetition(40, s=10, construction='random')",
    "cyclic_repetition(20, s=10, construction='fourier')",
    "communication_efficient(40, s=8, blocks=6)",
)


def payloads(code, grads):
    """What workers send for given partial gradients (k, DIM), in the type of these."""
    numbers, slices, found = number_type(code, grads.dtype), block_slices(DIM, code.blocks), {}

    def send(message, payload):
        found[message.index] = pack(message, payload, 0, numbers)[0]

    for worker in range(code.n):
        work(code.program(worker), lambda part, block: grads[part, slices[block]], send)
    return found


@pytest.mark.parametrize("expression", [*EXAMPLES, *HARD])
def test_what_is_exact_has_its_digits(expression):
    code = example(expression)
    if code.data is not None or not code.messages.plain.all():
        return  # encoded data and quantised messages have errors of their own
    grads = np.random.default_rng(0).standard_normal((code.k, DIM))
    for kind, allowed in ALLOWED.items():
        sent, eps = payloads(code, grads.astype(kind)), float(np.finfo(kind).eps)
        gather = Gather(code, DIM, np.dtype(kind))
        for got in survivor_sets(code, 12, rng=1):
            found = code.decoder.decode(got)
            if not found.exact(eps):
                continue
            gather.clear()
            arrived = np.flatnonzero(got).tolist()
            gather.add([Message(int(code.messages.worker[m]), m, 0, 0.0, sent[m]) for m in arrived])
            error = np.linalg.norm(gather.finish(found.weights)[0] - grads.sum(axis=0)) / np.linalg.norm(grads.sum(axis=0))
            assert error < allowed, (kind, arrived)


class Narrow:
    k, dim, dtype = 40, 4, np.dtype(np.float32)

    def grad(self, params, part, where=slice(None), step=0):
        return np.full(4, part, np.float32)[where]


def test_codes_that_lose_their_digits_are_refused_where_they_do():
    """Twenty neighbours late, and the gradient was wrong by 420 %, exact all the same."""
    code = codes.reed_solomon(40, s=20)
    with pytest.raises(Invalid, match=r"amplifies rounding by .* float32 numbers. Use a code that keeps its digits"):
        Master(code, Virtual(Narrow(), Exponential(rate=1.0)))
    kept = codes.cyclic_repetition(40, s=20, construction="null_space")
    with Master(kept, Virtual(Narrow(), Exponential(rate=1.0), rng=0)) as master:
        estimate = master.gradient(np.zeros(4), delays=np.where(np.arange(40) < 20, 100.0, 1.0))
    assert estimate.exact and estimate.gradient == pytest.approx(np.full(4, 780.0), rel=1e-3)


def test_a_round_that_would_lose_its_digits_waits_for_more():
    code = codes.reed_solomon(30, s=10)
    narrow = Round(code, Recovered(), terms=Terms(eps=float(np.finfo("f4").eps)))
    wide = Round(code, Recovered())
    for round in (narrow, wide):
        round.feed(*(Arrived(m, 1.0) for m in range(20)))
    assert wide.state is State.DONE and narrow.open and narrow.recovered("rule")
    narrow.feed(*(Arrived(m, 2.0) for m in range(20, 30)))
    assert narrow.state is State.DONE and narrow.exact and narrow.time == 2.0


def test_the_contract_says_which_types_keep_their_digits():
    report = check_code(codes.reed_solomon(100, s=5), sets=5, rounds=20)
    assert report.digits == {"float32": False, "float64": True} and "float32 lost" in str(report)
    assert simulate(codes.uncoded(3), Exponential(rate=1.0), rounds=3).exact.mean == 1
