"""What a worker refuses to send."""

import numpy as np
import pytest

from unstraggle import Master, WorkerFailed, codes
from unstraggle.engines import Local

from ..problems import Gives


@pytest.mark.parametrize(
    "what, words",
    [
        ("scalar", "gave shape () of"),
        ("long", "gave shape (9,) of float64"),
        ("table", "gave shape (8, 1) of float64"),
        ("complex", "gave shape (8,) of complex128"),
    ],
)
def test_partial_gradients_of_another_shape_or_kind_are_errors(what, words):
    """A scalar was broadcast, and an imaginary part dropped, and the gradient called exact."""
    with Master(codes.uncoded(2), Local(Gives(2, what=what))) as master, pytest.raises(WorkerFailed) as raised:
        master.gradient(np.zeros(8))
    assert "Gives.grad must give 8 real numbers" in str(raised.value) and words in str(raised.value)
