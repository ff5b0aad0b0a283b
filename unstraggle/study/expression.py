"""Codes and latency models as text, parsed without evaluating anything: calls of known names with literal arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from .. import codes, latency, quantizers
from ..checks import require_known
from ..doors import door
from ..errors import Invalid
from ..latency import Latency
from ..scheme.code import Code

LONGEST = 10_000
CODECS = ("ErrorFeedback", "Identity", "Plain", "QSGD", "Sign")
SAVED = ".npz"
"""How files of saved codes end."""


@door
def parse_code(text: str) -> Code:
    """The code that an expression describes.

    >>> parse_code("cluster(correlated_mmc(10, load=10, order=6), times=4)").n
    40
    """
    if "<" in text:
        raise Invalid(f"{text!r} is the name of a code that no expression makes. Save the code: code.save('code.npz').")
    known = {name: getattr(codes, name) for name in codes.SCHEMES}
    code = _parse(text, known | {name: getattr(quantizers, name) for name in CODECS}, "code")
    if not isinstance(code, Code):
        raise Invalid(f"A code expression must be a call such as cyclic_repetition(10, s=2), but got {text!r}.")
    return code


def find_code(text: str) -> Code:
    """The code that a user names: an expression, or a file of `Code.save`, which ends with .npz.

    >>> find_code("uncoded(4)").n
    4
    """
    return Code.read(text) if text.strip().endswith(SAVED) else parse_code(text)


@door
def parse_latency(text: str) -> Latency:
    """The latency model that an expression describes.

    >>> parse_latency("ShiftedExponential(rate=10, shift=0.01)")
    ShiftedExponential(rate=10, shift=0.01)
    """
    models = {name: getattr(latency, name) for name in latency.MODELS}
    model: Latency = _parse(text, models, "latency model")
    if not isinstance(model, Latency):
        raise Invalid(f"A latency expression must be a call such as ShiftedExponential(rate=10, shift=0.01), but got {text!r}.")
    return model


def _parse(text: str, known: Mapping[str, Callable[..., Any]], kind: str) -> Any:
    if len(text) > LONGEST:
        raise Invalid(f"A {kind} expression has at most {LONGEST} characters, but got {len(text)}.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body, known, kind)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise Invalid(f"A {kind} expression is a call such as name(10, key=2), but {text!r} cannot be read: {error}.") from None


def _value(node: ast.expr, known: Mapping[str, Callable[..., Any]], kind: str) -> Any:
    if isinstance(node, ast.Call):
        return _call(node, known, kind)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, known, kind) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise Invalid(
            f"A {kind} expression may hold calls, numbers, strings and lists only, but has {ast.unparse(node)!r}."
        ) from None


def _call(node: ast.Call, known: Mapping[str, Callable[..., Any]], kind: str) -> Any:
    name = ast.unparse(node.func)
    require_known(kind, name, known)
    if any(isinstance(arg, ast.Starred) for arg in node.args) or any(key.arg is None for key in node.keywords):
        raise Invalid(f"A {kind} expression may not unpack arguments, but has {ast.unparse(node)!r}.")
    args = [_value(arg, known, kind) for arg in node.args]
    keywords = {str(key.arg): _value(key.value, known, kind) for key in node.keywords}
    try:
        return known[name](*args, **keywords)
    except TypeError as error:
        raise Invalid(f"{ast.unparse(node)!r} does not fit {name}: {error}.") from error
