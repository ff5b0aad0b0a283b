"""What goes to the worker processes of this machine: by pickle, or by cloudpickle where workers cannot import it."""

from __future__ import annotations

import ast
import functools
import io
import pickle
import sys
from types import FunctionType
from typing import Any

from ..errors import Invalid

MAIN = ("__main__", "__mp_main__")


def dump(what: Any, file: Any) -> set[str]:
    """Write what a worker reads with `pickle.load`, and say which modules it imports for that.

    Pickle writes where a class or a function is to be imported from. Cloudpickle writes what stands there, and is used where
    nobody can import it: from a notebook, a script without guard, or inside of a function.
    """
    pickler = _Pickler(file, protocol=5)
    try:
        pickler.dump(what)
        by_value = not pickler.modules.isdisjoint(MAIN) and not imports_main()
    except (pickle.PicklingError, AttributeError, TypeError):
        if not _fits(what):
            raise
        by_value = True
    if by_value:
        file.seek(0)
        file.truncate()
        _cloudpickle().dump(what, file, protocol=5)
    return pickler.modules.difference(MAIN)


def imports_main() -> bool:
    """Whether workers import the script: where it has a guard, so that doing so starts nothing."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return path is not None and _guarded(path)


@functools.cache
def _guarded(path: str) -> bool:
    """Whether a script asks for its `__name__` before it does something; one that nobody can read may."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return True
    tests = [node.test for node in tree.body if isinstance(node, ast.If)]
    return any(isinstance(one, ast.Name) and one.id == "__name__" for test in tests for one in ast.walk(test))


class _Pickler(pickle.Pickler):
    """Notices the modules of all classes and functions."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.modules = set[str]()

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type | FunctionType) else type(obj)
        self.modules.add(kind.__module__)
        return NotImplemented


def _fits(what: Any) -> bool:
    """Whether cloudpickle is there and can write it."""
    try:
        _cloudpickle().dump(what, io.BytesIO(), protocol=5)
    except Exception:
        return False
    return True


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ModuleNotFoundError:
        raise Invalid(
            "Workers cannot import what stands in a notebook, at a prompt, or in a script without the guard "
            '`if __name__ == "__main__":`. Run: pip install cloudpickle, add the guard, or put it into a module that you '
            "import."
        ) from None
    return cloudpickle
