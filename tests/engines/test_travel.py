"""Problems that workers cannot import: from a notebook, from a script without guard, from inside of a function."""

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
    with pytest.raises(Invalid, match="pip install cloudpickle, add the guard, or put it into a module"):
        travel.dump(cell.Problem(), io.BytesIO())


def test_without_cloudpickle_an_engine_says_so(cell, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Invalid, match="pip install cloudpickle"):
        Master(codes.uncoded(2), Local(cell.Problem()))


@pytest.mark.parametrize("guard", ["", "if __name__ == '__main__':\n    raise SystemExit('the whole script')\n"])
def test_workers_import_a_script_that_has_a_guard_only(cell, guard, tmp_path, capfd):
    """Without one, its classes are sent as they stand, and importing it would run it again: here, fail."""
    script = tmp_path / "train.py"
    script.write_text(f"{CELL}\n{guard}\n" if guard else f"{CELL}\nraise SystemExit('the whole script')\n")
    cell.__file__, cell.__spec__ = str(script), None
    assert travel.imports_main() is bool(guard)
    with Master(codes.uncoded(2), Local(cell.Problem())) as master:
        np.testing.assert_array_equal(master.gradient(np.zeros(3)).gradient, 3.0)
    assert "the whole script" not in capfd.readouterr().err


def test_what_stands_inside_of_a_function_goes_to_the_workers():
    with Master(codes.uncoded(2), Local(Named(lambda part: part + 1.0))) as master:
        np.testing.assert_array_equal(master.gradient(np.zeros(3)).gradient, 3.0)


def test_what_nobody_can_send_says_what_pickle_says():
    with pytest.raises(TypeError, match="generator"):
        travel.dump(Named(part for part in ()), io.BytesIO())


class Named:
    k, dim, dtype = 2, 3, np.dtype(float)

    def __init__(self, value):
        self.value = value

    def grad(self, params, part, where=slice(None), step=0):
        return np.full(3, self.value(part))[where]
