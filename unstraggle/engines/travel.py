"""What goes to the worker processes of this machine: by pickle, and by cloudpickle from a notebook or a prompt."""

from __future__ import annotations

import pickle
import sys
from types import FunctionType
from typing import Any

from ..errors import Invalid


def dump(what: Any, file: Any) -> None:
    """Write what a worker reads with `pickle.load`.

    Pickle writes where a class or a function is to be imported from, which nobody can do from the cells of a notebook:
    cloudpickle writes what stands there.
    """
    if hasattr(sys.modules["__main__"], "__file__"):
        pickle.dump(what, file, protocol=5)
        return
    pickler = _Pickler(file, protocol=5)
    pickler.dump(what)
    if pickler.of_main:
        file.seek(0)
        file.truncate()
        _by_value().dump(what, file, protocol=5)


class _Pickler(pickle.Pickler):
    """Notices whether anything comes from the main module."""

    of_main = False

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type | FunctionType) else type(obj)
        self.of_main |= kind.__module__ == "__main__"
        return NotImplemented


def _by_value() -> Any:
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise Invalid(
            "Workers cannot import what stands in a notebook or at a prompt. Run: pip install cloudpickle, or put it into a "
            "module that you import."
        ) from None
    return cloudpickle
