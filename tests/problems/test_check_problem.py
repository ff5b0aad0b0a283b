"""The contract of problems finds those that break a promise, and lets those of the package pass."""

import numpy as np
import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle.testing import BrokenProblem, check_problem


class Squares:
    """Sum over rows of (x.w - 1)^2 / 2, two rows a partition; what a subclass changes is broken."""

    k, dim, dtype = 3, 4, np.dtype(np.float64)

    def __init__(self):
        self.rows = np.random.default_rng(0).normal(size=(3, 2, 4))
        self.calls, self.out = 0, np.zeros(4)

    def grad(self, params, part, where=slice(None), step=0):
        rows = self.rows[part]
        return ((rows @ params - 1) @ rows)[where]


class Matrix(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        return self.rows[part][:, where]


class Whole(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        return super().grad(params, part)


class Shifted(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        return super().grad(params, part)[where.start // 2 :][: where.stop - where.start]


class Counting(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        self.calls += 1
        return super().grad(params, part, where) + self.calls


class Reusing(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        self.out[where] = super().grad(params, part, where)
        return self.out[where]


class Moving(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        params += 1
        return super().grad(params, part, where)


class Unseen(Squares):
    def grad(self, params, part, where=slice(None)):
        return super().grad(params, part, where)


class Halves(Squares):
    dtype = np.dtype(np.float16)


class Forgetful(Squares):
    def __reduce__(self):
        return Zeros, ()


class Zeros(Squares):
    def grad(self, params, part, where=slice(None), step=0):
        return np.zeros(4)[where]


class Uncut(Squares):
    def only(self, parts):
        return Zeros()


class Overwriting(Squares):
    def accumulate(self, params, part, where, step, coef, total):
        return coef * self.grad(params, part, where, step)


class Sideways(Squares):
    def grads(self, params, step=0):
        return np.stack([self.grad(params, part) for part in range(3)]).T


BROKEN = {
    Matrix: r"has shape \(2, 4\), but must have \(4,\)",
    Whole: r"has shape \(4,\), but must have \(2,\)",
    Shifted: "not those coordinates of the whole gradient",
    Counting: "two calls with the same arguments differ",
    Reusing: "a later call overwrites the array",
    Moving: "changes the parameters",
    Unseen: "raises TypeError",
    Halves: "dtype is",
    Forgetful: "a pickled copy computes something else",
    Uncut: r"only\(\{2\}\) computes something else",
    Overwriting: "accumulate does not give",
    Sideways: r"grads has shape \(4, 3\)",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_broken_problems(kind):
    with pytest.raises(BrokenProblem, match=BROKEN[kind]):
        check_problem(kind())


def test_those_of_the_package_keep_their_promises():
    assert check_problem(Squares()) == us.testing.ProblemReport((0, 1, 2), ())
    module = us.torch.TorchModule(nn.Linear(3, 1), nn.MSELoss(), (torch.randn(12, 3), torch.randn(12, 1)), parts=3, batch=2)
    assert set(check_problem(module).roles) == {"Restricts", "Shares", "Accumulates", "ComputesAll"}
