"""What a worker refuses to send."""

import numpy as np
import pytest

from unstraggle import Invalid, Master, WorkerFailed, codes
from unstraggle.engines import Local, Virtual
from unstraggle.latency import Exponential
from unstraggle.runtime.serve import Job, run, share_of

from ..problems import Adds, Gives

WORDS = {
    "scalar": "gave shape () of",
    "long": "gave shape (9,) of float64",
    "table": "gave shape (8, 1) of float64",
    "complex": "gave shape (8,) of complex128",
    "list": "gave shape (8,) of list",
}


def on_virtual(problem):
    return Virtual(problem, Exponential(rate=1.0), rng=0)


@pytest.mark.parametrize("engine, what", [(Local, "long"), *((on_virtual, what) for what in WORDS)])
def test_partial_gradients_of_another_shape_or_kind_are_errors(engine, what):
    """A scalar was broadcast, and an imaginary part dropped, and the gradient called exact."""
    with Master(codes.uncoded(2), engine(Gives(2, what=what))) as master, pytest.raises(WorkerFailed) as raised:
        master.gradient(np.zeros(8))
    assert "Gives.grad must give 8 real numbers" in str(raised.value) and WORDS[what] in str(raised.value)


@pytest.mark.parametrize("problem", [Gives, Adds])
@pytest.mark.parametrize("what", WORDS)
def test_a_worker_sends_none_of_them(problem, what):
    share = share_of(problem(2, what=what), codes.uncoded(2), 0)
    with pytest.raises(Invalid, match="must give 8 real numbers"):
        run(share, Job(0, 0, np.zeros(8), 0.0), lambda *sent: pytest.fail("it was sent"), lambda: False, lambda until: None)
