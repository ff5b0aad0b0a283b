"""Doors: what people call. Where a call fails, the argument that does not fit is named instead of a line deep inside."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from .errors import Invalid, UnstraggleError

T = TypeVar("T")

WORDS = ("builtins", "typing", "unstraggle", "unstraggle.engines", "unstraggle.latency", "unstraggle.problems")
"""Where names of annotations are looked up that the module of a function does not have when it runs."""
LARGE = 2**53
"""From here on a number is as suspicious as one that is not finite."""
SHOWN = 80
"""Characters of a value in a message."""


def door(thing: T) -> T:
    """A function or a class whose errors over wrong arguments are `Invalid`.

    It costs nothing where all is well: only when a call has failed, and not by an error of this package, its arguments are
    held against their annotations. Where one does not fit, or is NaN, infinite, negative, empty or huge, that is what people
    are told, with the first error as the cause. Where all look good, the error is one of this package, and stays as it is.

    >>> @door
    ... def half(n: int) -> float:
    ...     return n / 2
    >>> half("four")
    Traceback (most recent call last):
    unstraggle.errors.Invalid: half needs n: int, but got n='four'.
    """
    if isinstance(thing, type):
        thing.__init__ = _guarded(thing.__init__, thing.__name__)  # type: ignore[misc]
        return thing
    return _guarded(thing, thing.__name__)  # type: ignore[attr-defined, no-any-return]


def _guarded(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def enter(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (UnstraggleError, ImportError):
            raise
        except Exception as error:
            why = _complaint(function, name, args, kwargs, error)
            if why is None:
                raise
            raise Invalid(why) from error

    return enter


def _complaint(function: Any, name: str, args: Any, kwargs: Any, error: Exception) -> str | None:
    """What is wrong with the arguments; None where nothing seems to be, or where there are too many or too few."""
    signature = inspect.signature(function)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    names = _Names(function)
    for key, value in given.items():
        parameter = signature.parameters[key]
        kind = names.kind(parameter.annotation)
        if value is not parameter.default and not _fits(_several(parameter, value), _kind_of(parameter, kind)):
            wanted = getattr(parameter.annotation, "__name__", parameter.annotation)
            return f"{name} needs {key}: {wanted}, but got {key}={_short(value)}."
    for key, value in given.items():
        if key != "self" and value is not signature.parameters[key].default and _odd(value):
            return f"{name} cannot work with {key}={_short(value)}: {error}."
    return None


def _kind_of(parameter: inspect.Parameter, kind: Any) -> Any:
    return tuple[kind, ...] if parameter.kind is parameter.VAR_POSITIONAL else kind


def _several(parameter: inspect.Parameter, value: Any) -> Any:
    return () if parameter.kind is parameter.VAR_KEYWORD else value


class _Names(dict[str, Any]):
    """What annotations mean: names of the function's module, and public ones that it imports for type checks only."""

    def __init__(self, function: Any) -> None:
        super().__init__(vars(sys.modules[function.__module__]))

    def __missing__(self, name: str) -> Any:
        for module in WORDS:
            found = getattr(sys.modules.get(module), name, None)
            if found is not None:
                return found
        raise NameError(name)

    def kind(self, annotation: Any) -> Any:
        """The type that an annotation names; Any where nobody knows."""
        if not isinstance(annotation, str):
            return Any if annotation is inspect.Parameter.empty else annotation
        try:
            return eval(annotation, {}, self)
        except (NameError, AttributeError, TypeError):
            return Any


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value may be of a type; what cannot be decided may."""
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, TypeVar | str):
        return True
    if kind is None or kind is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inside)
    if origin is Literal:
        return isinstance(value, str | int) and value in inside
    if kind in NUMBERS:
        return bool(NUMBERS[kind](value))
    if origin is np.ndarray or kind is np.ndarray:
        exact = {np.uint8, np.bool_} & set(get_args(inside[1]) if len(inside) > 1 else ())
        return hasattr(value, "dtype") and np.ndim(value) > 0 and (value.dtype.type in exact if exact else _numeric(value))
    if "_typing" in getattr(kind, "__module__", "") or (origin is not None and "ArrayLike" in str(kind)):
        return _numeric(value)
    if origin in (collections.abc.Callable, collections.abc.Mapping, dict):
        return callable(value) if origin is collections.abc.Callable else isinstance(value, Mapping)
    if isinstance(origin, type) and origin.__module__ in ("builtins", "collections.abc") and issubclass(origin, Iterable):
        return _items_fit(value, origin, inside)
    return not isinstance(origin or kind, type) or _is_a(value, origin or kind)


def _items_fit(value: Any, kind: type, inside: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes | type) or not isinstance(value, Iterable | np.ndarray):
        return False
    same = len(inside) == 1 or inside[1:] == (...,)
    try:
        return not same or all(_fits(item, inside[0]) for item in value)
    except TypeError:
        return False


def _is_a(value: Any, kind: type) -> bool:
    if not getattr(kind, "_is_protocol", False):
        return isinstance(value, kind)
    return not isinstance(value, type) and all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and value == value


NUMBERS: dict[Any, Any] = {
    int: _whole,
    float: _real,
    complex: lambda value: _real(value) or isinstance(value, complex | np.complexfloating),
    bool: lambda value: isinstance(value, bool | np.bool_),
}


def _numeric(value: Any) -> bool:
    """Whether it is a number or an array of numbers, or lists that make one."""
    try:
        return np.asarray(value).dtype.kind in "biufc"
    except Exception:
        return False


def _odd(value: Any) -> bool:
    """Whether a value of the right type is one that few mean: a text, NaN, infinite, negative, huge, complex, empty."""
    if isinstance(value, str | bytes | Mapping | complex | np.complexfloating):
        return True
    if isinstance(value, int | float | np.number):
        return not 0 <= value < LARGE
    if not isinstance(value, list | tuple | set | range | np.ndarray):
        return False
    if not _numeric(value):
        return len(value) == 0 or any(map(_odd, value))
    numbers = np.asarray(value)
    return numbers.size == 0 or numbers.dtype.kind == "c" or not (np.isfinite(numbers) & (numbers >= 0)).all()


def _short(value: Any) -> str:
    text = " ".join(repr(value).split()) if not _whole(value) or abs(value) < 10**SHOWN else "a huge number"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
