"""NaN and infinity in a gradient: never called exact, never held back."""

import logging
from dataclasses import dataclass

import numpy as np
import pytest

from unstraggle import Master, WorkerFailed, codes, parse_code
from unstraggle.app.live.state import State
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential


@dataclass(frozen=True, eq=False)
class Breaks:
    """Gradients of ones; at step 1 partition 2 gives a value of its own at one coordinate."""

    k: int
    value: float
    dim: int = 8
    dtype: type = np.float32

    def grad(self, params, part, where=slice(None), step=0):
        found = np.ones(self.dim, np.float32)
        if step == 1 and part == 2:
            found[3] = self.value
        return found[where]


@pytest.mark.parametrize("expression", ["uncoded(4)", "fractional_repetition(4, s=1)", "cyclic_repetition(4, s=2)"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_with_nan_comes_through_and_is_not_exact(expression, value, caplog):
    """It passed as exact. Whoever scales losses needs to see it, to leave the step out."""
    code = parse_code(expression)
    engine = Virtual(Breaks(4, value), Exponential(rate=1.0), rng=0)
    with Master(code, engine) as master, caplog.at_level(logging.WARNING):
        before, broken, after = (master.gradient(np.zeros(8)) for _ in range(3))
    for fine in (before, after):
        assert fine.exact and fine.finite and fine.gradient == pytest.approx(np.full(8, 4.0), rel=1e-5)
    assert not broken.exact and not broken.finite and not broken.skipped and broken.to_dict()["finite"] is False
    assert np.flatnonzero(~np.isfinite(broken.gradient)).tolist() == [3]
    assert len(caplog.records) == 1 and "Step 1: the gradient has NaN or infinity: workers [" in caplog.text
    assert [event["text"] for event in State("").add(broken, None)["events"]] == ["the gradient has NaN or infinity"]


def test_a_sum_that_is_too_large_is_not_exact_either(caplog):
    class Large(Breaks):
        def grad(self, params, part, where=slice(None), step=0):
            return np.full(self.dim, 3e38, np.float32)[where]

    with Master(codes.uncoded(4), Virtual(Large(4, 0.0), Exponential(rate=1.0), rng=0)) as master, np.errstate(over="ignore"):
        estimate = master.gradient(np.zeros(8))
    assert not estimate.exact and not estimate.finite and "no message has such" in caplog.text


def test_codecs_refuse_to_send_it():
    code = codes.quantize(codes.uncoded(4), bits=8)
    with Master(code, Virtual(Breaks(4, np.nan), Exponential(rate=1.0), rng=0)) as master:
        assert master.gradient(np.zeros(8)).finite
        with pytest.raises(WorkerFailed, match="finite coordinates"):
            master.gradient(np.zeros(8))
