"""Reading ahead: samples of the next step, in a thread, and the same as if they were read when they are needed."""

import numpy as np
import pytest
import torch

from unstraggle.torch.ahead import Ahead

from ..torch_models import coded, mlp, table


def test_what_was_asked_for_is_there_once_and_errors_come_when_it_is_taken():
    ahead = Ahead(pinned=False)
    ahead.ask((1, 0), lambda: torch.ones(2))
    ahead.ask((1, 0), lambda: torch.zeros(2))  # is being read
    assert torch.equal(ahead.take((1, 0)), torch.ones(2)) and ahead.take((1, 0)) is None
    ahead.ask((2, 0), lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ahead.take((2, 0))
    ahead.ask((3, 0), lambda: torch.ones(1))
    ahead.ask((9, 0), lambda: torch.ones(1))  # rounds were skipped
    assert ahead.take((3, 0)) is None and ahead.take((9, 0)) is not None


def test_a_problem_that_reads_ahead_computes_the_same():
    with coded(mlp(), data=table(), scheme="uncoded(2)") as run:
        problem, params = run.problem, np.array(run._params())
        steps = [(step, part) for step in (0, 1, 2, 5) for part in (0, 1)]
        expected = [problem.grad(params, part, step=step).copy() for step, part in steps]
        assert not problem._reads_ahead()  # a CPU has nothing else to do
        problem._ahead = Ahead(pinned=False)
        found = [problem.grad(params, part, step=step) for step, part in steps]
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
