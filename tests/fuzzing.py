"""Bad values for every public function and command: what is called, and with what."""

import enum
import functools
import importlib
import inspect
import types

import numpy as np

import unstraggle as us
from unstraggle import codes, latency, problems, quantizers

MODULES = ("unstraggle", *(f"unstraggle.{name}" for name in us.MODULES))


def public(module):
    """{name: callable} of every public function and class of a module, with the functions that make objects of a class."""
    found = {}
    for name in importlib.import_module(module).__all__:
        thing = getattr(importlib.import_module(module), name)
        if callable(thing) and not _is_word(thing):
            found[name] = thing
            makers = vars(thing).items() if isinstance(thing, type) else ()
            found |= {
                f"{name}.{key}": getattr(thing, key) for key, one in makers if isinstance(one, classmethod) and key[0] != "_"
            }
    return found


def _is_word(thing):
    """What is a name for something and not called by people: modules, errors, enumerations, roles, types."""
    if not isinstance(thing, type):
        return isinstance(thing, types.ModuleType | types.GenericAlias | types.UnionType)
    role = getattr(thing, "_is_protocol", False) or inspect.isabstract(thing)
    return role or issubclass(thing, BaseException | enum.Enum)


class Odd:
    """An object of no use."""

    def __repr__(self):
        return "Odd()"


BAD = (
    *(
        None,
        float("nan"),
        float("inf"),
        -float("inf"),
        -1,
        0,
        -1.5,
        0.5,
        2**40,
        10**400,
        1e308,
        -(2**63),
        True,
        1j,
        np.int64(-3),
    ),
    *("", "nonsense", "uncoded(", "\0", b"bytes", "/nowhere/at all", "9" * 50),
    *([], (), {}, [[]], [None], [1, "a"], [[1, 2], [3]], {"a": [1]}, {1, 2}, Odd(), Odd, int, range(3), slice(None), len),
    *(np.zeros(0), np.zeros((2, 0)), np.zeros((2, 3, 4, 5)), np.full(3, np.nan), np.array([1.0, np.inf]), np.array(["a", "b"])),
    *(np.array([object()]), np.array(1.0), np.ones(3, complex), np.ones((3, 3), bool), -np.ones(4)),
)


def no_engine(problem):
    raise us.UnstraggleError("There is none.")


@functools.cache
def good_values():
    """By the name of a parameter, a value that is good wherever it stands: so that calls get to the bad one."""
    code, model = codes.cyclic_repetition(4, s=1), latency.ShiftedExponential(rate=1.0, shift=0.1)
    trace = us.trace.from_seconds(np.random.default_rng(0).exponential(size=(12, 4)) + 0.1)
    problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    payload = quantizers.Identity().encode(np.arange(8, dtype=np.float32), seed=0)
    one = dict.fromkeys(("s", "count", "restarts", "threads", "rate", "scale", "sigma", "time", "fast", "norm", "stay"), 1)
    two = dict.fromkeys(("load", "order", "degree", "blocks", "copies", "max_load", "slow", "c", "d", "shape", "slowdown"), 2)
    few = dict.fromkeys(("rounds", "samples", "sets", "draws", "repeats"), 5)
    models = dict.fromkeys(("latency", "base"), model) | {"workers": [model, model]}
    tables = {"worker": [0, 1], "after": [1, 1], "part": [0, 1], "coef": np.eye(2), "rows": np.eye(4), "weights": [1.0]}
    times = {"start": np.zeros((3, 4, 2)), "end": np.ones((3, 4, 2)), "durations": np.ones((3, 8)), "arrivals": np.ones((3, 4))}
    data = {"features": np.eye(4), "labels": np.array([0.0, 1, 1, 0]), "parts": 2, "partitions": problem.partitions}
    rest = {"n": 4, "k": 4, "orders": [1, 2], "p": 0.2, "bits": 4, "budget": 32, "dim": 64, "mu": 0.0, "shift": 0.1, "rng": 0}
    objects = {"problem": problem, "trace": trace, "source": trace, "stop": us.Recovered(), "program": code.program(0)}
    engine = {"engine": us.engines.Virtual(problem, model, rng=0), "heartbeat": 10.0, "start_within": 10.0, "now": 0.0}
    coded = {"code": code, "first": code, "second": code, "codec": quantizers.Sign(), "payload": payload, "payloads": [payload]}
    more = {
        "seed": 0,
        "bandwidth": 1e6,
        "values": np.ones((3, 4)),
        "seconds": np.ones((3, 4)),
        "text": "uncoded(4)",
        "make": Odd,
    }
    return one | two | few | models | tables | times | data | rest | objects | engine | coded | more | {"make": no_engine}


FEW = ("rounds", "samples", "sets", "draws", "repeats", "max_load")
"""Parameters whose defaults take long."""


def arguments(rng, function):
    """Positional and keyword arguments: good ones or defaults, but for one or two."""
    parameters = inspect.signature(function).parameters
    named = [name for name, one in parameters.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    chosen = rng.permutation(len(named))[: rng.integers(1, 3)].tolist()
    values = {}
    for number, name in enumerate(named):
        needed = parameters[name].default is inspect.Parameter.empty
        if number in chosen or (needed and name not in good_values()):
            values[name] = bad(rng)
        elif needed or name in FEW:
            values[name] = good_values()[name]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters.values())
    first = [
        values.pop(name)
        for name in named
        if several and parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY and name in values
    ]
    return [*first, bad(rng)] if several else first, values


def bad(rng):
    return BAD[rng.integers(len(BAD))]


TEXTS = ("", "-1", "0", "nan", "inf", "1e400", "0.5", "9" * 30, "nonsense", "uncoded(", "[]", "/nowhere/at all", ".", "1j")
NOTHING = "no such thing"
"""What is given to commands that would start processes or take long: they refuse it before that."""
LONG = {"bench": ("names",), "demo": ("out",), "train": ("task",), "measure": ("engine",), "reproduce": ("figure",)}


def commands():
    """(words, parameters) of every command."""
    import typer

    from unstraggle.app.cli.commands import app

    def walk(command, words):
        for name, one in getattr(command, "commands", {}).items():
            yield from walk(one, (*words, name))
        if not hasattr(command, "commands"):
            yield words, command.params

    return walk(typer.main.get_command(app), ())


def command_line(rng, words, parameters, good):
    """A command with good arguments and options, but for one or two."""
    chosen = rng.permutation(len(parameters))[: rng.integers(1, 3)].tolist()
    line = list(words)
    for number, one in enumerate(parameters):
        value = good.get(one.name) if one.required else None
        if number in chosen:
            value = TEXTS[rng.integers(len(TEXTS))]
        if one.name in LONG.get(words[0], ()):
            value = "/dev/null/none" if one.name == "out" else NOTHING
        if one.name in ("rounds", "engine") and value is None:
            value = good[one.name]
        line += [] if value is None else _given(one, value)
    return line


def _given(one, value):
    if one.param_type_name == "argument":
        return [value]
    return [one.opts[0]] if getattr(one, "is_flag", False) else [one.opts[0], value]
