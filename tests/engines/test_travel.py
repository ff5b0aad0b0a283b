"""Problems from a notebook: classes of a main module that has no file."""

import io
import sys
import types

import numpy as np
import pytest

from unstraggle import Invalid, Master, codes
from unstraggle.engines import Local, travel

CELL = """
import numpy as np

class Problem:
    k, dim, dtype = 2, 3, np.dtype(float)

    def grad(self, params, part, where=slice(None), step=0):
        return np.full(3, part + 1.0)[where]
"""


@pytest.fixture
def cell(monkeypatch):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(CELL, vars(main))
    return main


def test_a_problem_of_a_notebook_goes_to_the_workers(cell):
    with Master(codes.uncoded(2), Local(cell.Problem())) as master:
        np.testing.assert_array_equal(master.gradient(np.zeros(3)).gradient, 3.0)


def test_without_cloudpickle_the_way_out_is_named(cell, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Invalid, match="pip install cloudpickle, or put it into a module"):
        travel.dump(cell.Problem(), io.BytesIO())


def test_without_cloudpickle_an_engine_says_so(cell, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Invalid, match="pip install cloudpickle"):
        Master(codes.uncoded(2), Local(cell.Problem()))
