"""Need: one tree, four evaluations (NumPy time, truth, counters, compiled kernel) that must agree."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstraggle import Code, Invalid, Messages, Need, Span, Tasks
from unstraggle.scheme import recovery_times as kernels
from unstraggle.scheme.recovery import Gates

SIZE = 7


def trees():
    leaf = st.integers(0, SIZE - 1)
    copies = st.lists(leaf, min_size=1, max_size=3, unique=True).map(tuple)

    def gates(children):
        several = st.lists(children, min_size=1, max_size=5)
        return several.flatmap(lambda of: st.integers(1, len(of)).map(lambda count: Need(count, tuple(of))))

    return gates(st.recursive(leaf | copies, gates, max_leaves=12))


def brute_time(child, arrivals):
    if isinstance(child, int):
        return arrivals[child]
    if isinstance(child, tuple):
        return min(arrivals[m] for m in child)
    return sorted(brute_time(c, arrivals) for c in child.of)[child.count - 1]


times = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 7.25, np.inf]), min_size=SIZE, max_size=SIZE)


@given(trees(), times)
@settings(max_examples=300, deadline=None)
def test_time_is_the_nested_order_statistic(rule, arrivals):
    assert rule.time(np.array(arrivals)) == brute_time(rule, arrivals)


@given(trees(), st.permutations(range(SIZE)))
@settings(max_examples=300, deadline=None)
def test_counters_agree_with_truth_after_every_arrival(rule, order):
    tally, got = Gates(rule, SIZE).begin(), np.zeros(SIZE, dtype=bool)
    for message in order:
        tally.add(message)
        got[message] = True
        assert tally.met == rule.met(got)


@given(trees(), st.sets(st.integers(0, SIZE - 1)), st.integers(0, SIZE - 1))
@settings(max_examples=300, deadline=None)
def test_one_more_arrival_never_unrecovers(rule, arrived, extra):
    got = np.isin(np.arange(SIZE), list(arrived))
    more = got.copy()
    more[extra] = True
    assert rule.met(more) or not rule.met(got)


def one_message_code(rule):
    """A table that any rule over SIZE messages fits (what it decodes does not matter here)."""
    tasks = Tasks(np.arange(SIZE), np.arange(SIZE))
    messages = Messages(np.arange(SIZE), np.ones(SIZE, dtype=int), np.eye(SIZE))
    return Code("any", SIZE, tasks, messages, Span(messages.coef, rule))


@given(trees(), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_kernel_equals_numpy_also_with_ties_and_losses(rule, seed):
    rng = np.random.default_rng(seed)
    arrivals = rng.choice([0.0, 0.25, 1.0, 3.0, np.inf], (70, SIZE)) + rng.choice([0.0, 1e-9], (70, SIZE))
    times, sent = kernels.rule_rounds(one_message_code(rule), arrivals)
    expected = rule.time(arrivals)
    assert np.array_equal(times, expected)
    assert np.array_equal(sent, ((arrivals <= expected[:, None]) & np.isfinite(arrivals)).sum(axis=1))


@pytest.mark.parametrize("count", [2, 17, 30, 39])
def test_kernel_selection_on_continuous_values(count):
    rng = np.random.default_rng(count)
    arrivals = rng.pareto(0.7, (1000, 40)) * 10.0 ** rng.integers(-150, 150, (1000, 1))
    rule = Need(count, tuple(range(40)))
    messages = Messages(np.arange(40), np.ones(40, dtype=int), np.eye(40))
    code = Code("wide", 40, Tasks(np.arange(40), np.arange(40)), messages, Span(messages.coef, rule))
    assert np.array_equal(kernels.rule_rounds(code, arrivals)[0], np.sort(arrivals, axis=1)[:, count - 1])


@given(trees())
@settings(max_examples=100, deadline=None)
def test_threshold_is_the_least_that_always_suffices(rule):
    """Only for trees in which every message occurs once; then it can be counted by brute force."""
    rule = distinct(rule, iter(range(100)))
    size = len(rule.messages)
    if size > 9:
        return
    groups = list(leaves(rule))
    enough = [all(met(rule, groups, chosen) for chosen in combinations(range(len(groups)), c)) for c in range(len(groups) + 1)]
    assert enough.index(True) == rule.threshold


def distinct(child, numbers):
    if isinstance(child, int):
        return next(numbers)
    if isinstance(child, tuple):
        return tuple(next(numbers) for _ in child)
    return Need(child.count, tuple(distinct(c, numbers) for c in child.of))


def leaves(child):
    if isinstance(child, Need):
        for c in child.of:
            yield from leaves(c)
    else:
        yield (child,) if isinstance(child, int) else child


def met(rule, groups, chosen):
    return bool(rule.met(np.isin(np.arange(100), [m for g in chosen for m in groups[g]])))


def test_a_need_must_be_possible():
    with pytest.raises(Invalid, match="1 <= count <= len"):
        Need(3, (0, 1))
    with pytest.raises(Invalid, match="1 <= count <= len"):
        Need(0, (0, 1))
    with pytest.raises(Invalid, match="empty tuple"):
        Need(1, (0, ()))
