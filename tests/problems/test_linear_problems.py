"""Least squares and logistic regression: gradients in blocks, against derivatives, and residuals computed once."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.problems import LeastSquares, Logistic


def data(samples=23, dim=7):
    rng = np.random.default_rng(0)
    return rng.standard_normal((samples, dim)), rng.random(samples) < 0.5


@pytest.mark.parametrize("kind", [LeastSquares, lambda *given: Logistic.split(*given, ridge=0.3)])
def test_blocks_make_up_the_gradient(kind):
    problem = kind.split(*data(), 3) if kind is LeastSquares else kind(*data(), 3)
    params = np.linspace(-1, 1, 7)
    for part in range(3):
        blocks = [problem.grad(params, part, slice(a, b)) for a, b in ((0, 2), (2, 3), (3, 7))]
        np.testing.assert_allclose(np.concatenate(blocks), problem.grad(params, part), rtol=1e-12)
    params *= 2  # the same array with other numbers
    np.testing.assert_allclose(problem.grad(params, 1, slice(0, 2)), problem.grad(params, 1)[:2], rtol=1e-12)


def test_gradients_are_derivatives():
    problem, params = Logistic.split(*data(), [0.2, 0.8], ridge=0.3), np.linspace(-1, 1, 7)
    steps = 1e-6 * np.eye(7)
    slopes = [(problem.loss(params + step) - problem.loss(params - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(problem.gradient(params) / 23, slopes, rtol=1e-7)
    problem = LeastSquares.split(*data(), 4)
    x, y = data()
    np.testing.assert_allclose(problem.gradient(params), x.T @ (x @ params - y), rtol=1e-12)


@dataclass(frozen=True, eq=False)
class Counted(LeastSquares):
    calls: ClassVar = []

    def residuals(self, params, part):
        self.calls.append(part)
        return super().residuals(params, part)


def test_residuals_are_computed_once_for_all_blocks():
    problem, params = Counted(LeastSquares.split(*data(), 3).partitions).only({0, 2}), np.ones(7)
    for where in (slice(0, 3), slice(3, 5), slice(5, 7)):
        for part in (0, 2):
            problem.grad(params, part, where)
    assert sorted(Counted.calls) == [0, 2]
    problem.grad(np.zeros(7), 0, slice(0, 3))
    assert sorted(Counted.calls) == [0, 0, 2]


@pytest.mark.parametrize("kind", [LeastSquares, Logistic])
@pytest.mark.parametrize("labels", [np.zeros(4), np.zeros((5, 1))])
def test_wrong_shapes_are_named(kind, labels):
    with pytest.raises(Invalid, match=r"features \(samples, dim\) and labels .* but got \(5, 2\) and"):
        kind.split(np.zeros((5, 2)), labels, 2)
