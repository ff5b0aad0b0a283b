"""Bad input raises the project's own error with rule, value and way out."""

import numpy as np
import pytest

from unstraggle import (
    Code,
    Count,
    Deadline,
    First,
    Fixed,
    Invalid,
    Linger,
    Messages,
    Recovered,
    Span,
    Tasks,
    UnstraggleError,
    codes,
    parse_code,
    parse_latency,
    simulate,
)
from unstraggle.latency import Exponential, ShiftedExponential
from unstraggle.papers.mmc_clustering.figure1 import Setting

LATENCY = ShiftedExponential(rate=1.0)

CASES = {
    "no workers": (lambda: codes.uncoded(0), "n=0"),
    "negative workers": (lambda: codes.cyclic_repetition(-3, s=1), "n=-3"),
    "half a worker": (lambda: codes.uncoded(2.5), "n=2.5"),
    "a truth value": (lambda: codes.uncoded(True), "n=True"),
    "nobody left": (lambda: codes.cyclic_repetition(5, s=5), "s is at most n - 1"),
    "negative stragglers": (lambda: codes.cyclic_repetition(5, s=-1), "s=-1"),
    "groups do not divide": (lambda: codes.fractional_repetition(40, s=8), "Use s=7 or s=9, or cyclic_repetition"),
    "order above the load": (lambda: codes.correlated_mmc(10, load=4, order=5), "order=5"),
    "orders above the load": (lambda: codes.uncorrelated_mmc(10, load=4, orders=[3, 5]), "orders=5"),
    "orders twice": (lambda: codes.uncorrelated_mmc(10, load=4, orders=[3, 3]), "distinct orders"),
    "no orders": (lambda: codes.uncorrelated_mmc(10, load=4, orders=[]), "distinct orders"),
    "one order": (lambda: codes.uncorrelated_mmc(10, load=4, orders=3), "distinct orders"),
    "load above n": (lambda: codes.uncoded_mmc(4, load=5), "load=5"),
    "lagrange load": (lambda: codes.lagrange(4, load=0), "load=0"),
    "unknown construction": (lambda: codes.cyclic_repetition(5, s=1, construction="magic"), "'magic'"),
    "unknown field": (lambda: codes.reed_solomon(5, s=1, field="finite"), "'finite'"),
    "real code too large": (lambda: codes.reed_solomon(13, s=1, field="real"), 'field="complex"'),
    "reed_solomon of nothing": (lambda: codes.reed_solomon(), "n and s, or a mask"),
    "empty column": (lambda: codes.reed_solomon(mask=[[1, 0], [1, 0]]), "every row and column"),
    "no slowdown": (lambda: codes.partial_stragglers(5, s=1, slowdown=1.0), "slowdown > 1"),
    "nan slowdown": (lambda: codes.partial_stragglers(5, s=1, slowdown=float("nan")), "slowdown > 1"),
    "no clusters": (lambda: codes.cluster(codes.uncoded(2), times=0), "times=0"),
    "cluster of nothing": (lambda: codes.cluster(), "at least one code"),
    "cluster of a number": (lambda: codes.cluster(4), "at least one code"),
    "stack of different workers": (lambda: codes.stack(codes.uncoded(2), codes.uncoded(3)), "same workers"),
    "stack with a zero share": (lambda: codes.stack(codes.uncoded(2), codes.uncoded(2), shares=[1, 0]), "positive shares"),
    "blocks of different partitions": (
        lambda: codes.blocks([1, 1], codes.uncoded(2), codes.stack(codes.uncoded(2), codes.uncoded(2))),
        "same partitions",
    ),
    "blocks without sizes": (lambda: codes.blocks([1], codes.uncoded(2), codes.uncoded(2)), "each of its 2 codes"),
    "negative block": (lambda: codes.blocks([1, -1], codes.uncoded(2), codes.uncoded(2)), "size >= 0"),
    "cluster of blocks": (lambda: codes.cluster(codes.blocks([1, 1], codes.uncoded(2), codes.uncoded(2))), "outside"),
    "clusters do not divide": (lambda: Setting(n=40, clusters=3), "clusters=3"),
    "negative rate": (lambda: ShiftedExponential(rate=-1.0), "rate=-1.0"),
    "nan rate": (lambda: ShiftedExponential(rate=float("nan")), "rate=nan"),
    "zero rate": (lambda: Exponential(rate=0), "rate=0"),
    "negative shift": (lambda: ShiftedExponential(rate=1.0, shift=-0.1), "shift=-0.1"),
    "unknown draw": (lambda: ShiftedExponential(rate=1.0, per="year"), "per='year'"),
    "negative deadline": (lambda: Deadline(-1.0), "positive"),
    "count of nobody": (lambda: Count(0), "count >= 1"),
    "count of pigeons": (lambda: Count(1, of="pigeons"), "pigeons"),
    "count above n": (lambda: simulate(codes.uncoded(3), LATENCY, Count(4), rounds=10), "3 workers"),
    "first of nothing": (lambda: First(), "at least one stop rule"),
    "linger into the past": (lambda: Linger(Recovered(), 0.5), "factor >= 1"),
    "unknown code": (lambda: parse_code("cyclic_repetion(10, s=2)"), "Did you mean cyclic_repetition"),
    "unknown latency": (lambda: parse_latency("Zzz(1)"), "Known: Bernoulli"),
    "bad argument": (lambda: parse_code("cyclic_repetition(10, t=2)"), "does not fit cyclic_repetition"),
    "missing argument": (lambda: parse_code("cyclic_repetition(10)"), "does not fit cyclic_repetition"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_with_rule_value_and_way_out(name):
    make, words = CASES[name]
    with pytest.raises(Invalid) as caught:
        make()
    assert words in str(caught.value) and isinstance(caught.value, UnstraggleError) and isinstance(caught.value, ValueError)


def code(tasks=None, messages=None, n=2, **more):
    tasks = Tasks([0, 1], [0, 1]) if tasks is None else tasks
    messages = Messages([0, 1], [1, 1], np.eye(2)) if messages is None else messages
    return Code("mine", n, tasks, messages, more.pop("decoder", None) or Span(messages.coef), **more)


TABLES = {
    "ragged": (lambda: Tasks([0, 1], [0, 1, 2]), "one for each of the 2 rows"),
    "fractional worker": (lambda: Tasks([0.5], [0]), "needs integers"),
    "no work": (lambda: Tasks([0], [0], work=0.0), "positive finite"),
    "nan work": (lambda: Tasks([0], [0], work=np.nan), "positive finite"),
    "coef rows": (lambda: Messages([0, 1], [1, 1], np.eye(3)), "each of the 2 messages"),
    "nan coef": (lambda: Messages([0], [1], np.array([[np.nan]])), "finite numbers"),
    "no codec": (lambda: Messages([0], [1], np.eye(1), codec=4), "needs codecs such as QSGD"),
    "no rows": (lambda: code(n=0), "at least one worker"),
    "worker out of range": (lambda: code(n=1), "Tasks.worker must lie in 0..0"),
    "partition out of range": (lambda: code(tasks=Tasks([0, 1], [0, 2])), "Tasks.part must lie in 0..1"),
    "after too much": (lambda: code(messages=Messages([0, 1], [1, 2], np.eye(2))), "which has 1"),
    "after nothing": (lambda: code(messages=Messages([0, 1], [0, 1], np.eye(2))), "counts finished tasks"),
    "empty message": (lambda: code(messages=Messages([0, 1], [1, 1], np.diag([1.0, 0.0]))), "combines nothing"),
    "blocks do not sum to one": (lambda: code(blocks=(0.5, 0.4)), "sum to 1"),
    "block out of range": (lambda: code(messages=Messages([0, 1], [1, 1], np.eye(2), block=1)), "Messages.block"),
    "decoder of another code": (lambda: code(decoder=Span(np.eye(3))), "decoder is for 3"),
    "weights of another code": (lambda: Fixed(np.eye(2), fixed=np.ones(3)), "each of 2 messages"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_validate_themselves(name):
    make, words = TABLES[name]
    with pytest.raises(Invalid) as caught:
        make()
    assert words in str(caught.value)


def test_tables_cannot_be_changed_behind_the_back():
    table = codes.cyclic_repetition(4, s=1)
    with pytest.raises(ValueError, match="read-only"):
        table.messages.after[0] = 2
    with pytest.raises(ValueError, match="read-only"):
        table.messages.coef.data[0] = 2
