"""Rounds whose messages are announced and fetched: simulated equals replayed equals a real master."""

import numpy as np
import pytest

from tests.examples import APPROXIMATE_EXAMPLES, EXAMPLES, example
from tests.problems import least_squares
from unstraggle import Count, Deadline, First, Invalid, Linger, Master, Recovered, Round, Terms, codes, replay, simulate
from unstraggle.engines import Virtual
from unstraggle.latency import Network, ShiftedExponential
from unstraggle.scheme.arrivals import way_of
from unstraggle.study.pulled import replay_pulled
from unstraggle.testing import Recorded, RecordedTasks

from .test_twins import TWO, arrivals_for

SETTING = ShiftedExponential(rate=10, shift=0.01)
STOPS = (Count(1), First(Recovered("span"), Deadline(2.0)), Linger(Recovered("span"), 1.3), Deadline(0.9), Recovered("span"))
ROUNDS = 16
"""Half of them with continuous times, a quarter with ties, a quarter with losses."""


def slow(base, n, seed=3):
    """Links that are busy: notes and requests take time, payloads queue at their workers and at the master."""
    rates = tuple(np.random.default_rng(seed).uniform(100, 400, n).tolist())
    return Network(base, dim=10, bandwidth=rates, round_trip=0.1, master=500.0)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_simulated_rounds_are_those_of_a_real_round(expression):
    code = example(expression)
    arrivals = arrivals_for(code, ROUNDS, seed=7)
    network = slow(Recorded(arrivals), code.n)
    for stop in STOPS if expression in (*TWO, "uncoded_mmc(12, load=4)") else STOPS[-2:]:
        fast = simulate(code, network, stop, rounds=ROUNDS, transfer="pull")
        rounds = [Round(code, stop, terms=Terms(transfer="pull")) for _ in arrivals]
        assert_same(fast, rounds, arrivals, way_of(network, code), str(stop))


def assert_same(fast, rounds, arrivals, way, what):
    """Simulated rounds are those that real ones make of notes which come a tenth of a second after messages are made."""
    ended = [replay_pulled(each, row + 0.1, way)[0] for each, row in zip(rounds, arrivals, strict=True)]
    times = [np.inf if each.time is None else each.time for each in ended]
    np.testing.assert_allclose(fast.time.values, times, rtol=1e-12, err_msg=what)
    over = np.isfinite(times)
    assert np.array_equal(fast.messages.values[over], np.array([each.got.sum() for each in ended])[over]), what
    assert np.array_equal(fast.notes.values[over], np.array([each.notes for each in ended])[over]), what
    assert np.array_equal(fast.exact.values[over], np.array([each.exact for each in ended])[over]), what


CLUSTERED = [e for e in EXAMPLES if e.startswith(("cluster", "hybrid(cluster", "stack", "blocks"))]


@pytest.mark.parametrize("expression", CLUSTERED)
@pytest.mark.parametrize("by", ["rule", "span"])
def test_clusters_that_stop_fetch_what_they_need_and_are_let_go(expression, by):
    """Over busy links and over none, each round by itself; and with carry-over, where who is let go is free earlier."""
    code, terms = example(expression), Terms(sending="cluster_stop", transfer="pull")
    arrivals, options = arrivals_for(code, 40, seed=3), {"by": by, "sending": "cluster_stop", "transfer": "pull"}
    network = slow(Recorded(arrivals), code.n)
    fast = simulate(code, network, rounds=40, **options)
    assert_same(fast, [Round(code, Recovered(by), terms=terms) for _ in arrivals], arrivals, way_of(network, code), by)
    together = simulate(code, network, rounds=40, by=by, transfer="pull")
    over = np.isfinite(fast.time.values)
    assert (fast.notes.values <= together.notes.values)[over].all()
    tasks = np.random.default_rng(4).exponential(size=(40, len(code.tasks)))
    for carry, times, model in ((False, arrivals, Recorded), (True, tasks, RecordedTasks)):
        fast, plain = (
            simulate(code, model(times), rounds=40, carry=carry, **options),
            replay(code, times, carry=carry, **options),
        )
        np.testing.assert_allclose(fast.time.values, plain.time.values, rtol=1e-12)
        over = np.isfinite(plain.time.values)
        for kind in ("messages", "notes"):
            assert np.array_equal(getattr(fast, kind).values[over], getattr(plain, kind).values[over]), (kind, carry)


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("expression", CLUSTERED)
def test_a_master_over_virtual_lets_clusters_go_as_the_simulation_does(expression, carry):
    code, rounds = example(expression), 20
    network = slow(RecordedTasks(0.05 + np.random.default_rng(1).exponential(size=(rounds, len(code.tasks)))), code.n)
    problem, stop = least_squares(code), Recovered("rule")
    options = {"sending": "cluster_stop", "transfer": "pull"}
    with Master(code, Virtual(problem, network, rng=0, carry=carry), stop, **options) as master:
        estimates = [master.gradient(np.full(24, 0.1), step) for step in range(rounds)]
    fast = simulate(code, network, stop, rounds=rounds, carry=carry, **options)
    np.testing.assert_allclose([estimate.wait for estimate in estimates], fast.time.values, rtol=1e-12)
    assert [estimate.messages for estimate in estimates] == fast.messages.values.tolist()
    for estimate in estimates:
        np.testing.assert_allclose(estimate.gradient, problem.gradient(np.full(24, 0.1)), rtol=1e-9)


def test_who_is_let_go_says_less_and_is_free_for_the_next_round():
    """Also where what is used depends on what else came: a cluster fetches its own, and does not wait for the others."""
    for inner in (codes.uncoded_mmc(4, load=3), codes.cyclic_repetition(6, s=2)):
        code = codes.cluster(inner, times=3)
        link = Network(ShiftedExponential(rate=1.0, shift=0.1), dim=10, round_trip=0.1)
        stay, go = (
            simulate(code, link, rounds=400, rng=0, carry=True, sending=how, transfer="pull") for how in ("all", "cluster_stop")
        )
        assert go.notes.mean < stay.notes.mean and go.time.mean < stay.time.mean


@pytest.mark.parametrize("expression", APPROXIMATE_EXAMPLES)
def test_approximate_codes_fetch_all_that_was_announced_by_the_rule(expression):
    code, stop = example(expression), Deadline(1.0)
    arrivals = arrivals_for(code, 60, seed=5)
    pushed, pulled = (replay(code, arrivals, stop, by="span", transfer=how) for how in ("push", "pull"))
    assert np.array_equal(pushed.time.values, pulled.time.values)
    np.testing.assert_allclose(pulled.residual.values, pushed.residual.values, atol=1e-12)
    fast = simulate(code, Recorded(arrivals), stop, rounds=60, by="span", transfer="pull")
    assert np.array_equal(fast.messages.values, pulled.messages.values)


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("expression", ["uncoded_mmc(5, load=3)", "cyclic_repetition(6, s=2)", "fractional_repetition(6, s=1)"])
def test_a_master_over_virtual_takes_as_long_as_the_simulation(expression, carry):
    code, rounds = example(expression), 30
    network = slow(RecordedTasks(0.05 + np.random.default_rng(1).exponential(size=(rounds, len(code.tasks)))), code.n)
    problem = least_squares(code)
    with Master(code, Virtual(problem, network, rng=0, carry=carry), transfer="pull") as master:
        estimates = [master.gradient(np.full(24, 0.1), step) for step in range(rounds)]
    fast = simulate(code, network, rounds=rounds, carry=carry, transfer="pull")
    np.testing.assert_allclose([estimate.wait for estimate in estimates], fast.time.values, rtol=1e-12)
    assert [estimate.messages for estimate in estimates] == fast.messages.values.tolist()
    for estimate in estimates:
        np.testing.assert_allclose(estimate.gradient, problem.gradient(np.full(24, 0.1)), rtol=1e-9)


def test_copies_are_not_fetched_and_what_is_sure_comes_early():
    """Figure 1 of [A], at 3 ms a message on the master's link: pushed, 400 messages queue; 40 are used."""
    code, link = codes.uncoded_mmc(40, load=10), Network(SETTING, dim=750, master=1e6)
    pushed, pulled = (simulate(code, link, rounds=2000, rng=0, transfer=how) for how in ("push", "pull"))
    assert pulled.messages.mean == 40 and pulled.notes.mean > 100 and pushed.notes is None
    assert pulled.time.mean < 0.6 * pushed.time.mean and "notes" in str(pulled) and "notes" in pulled.to_dict()


def test_without_links_pull_takes_as_long_as_push():
    for code in (codes.uncoded_mmc(5, load=3), codes.cyclic_repetition(6, s=2)):
        pushed, pulled = (simulate(code, SETTING, rounds=500, rng=0, transfer=how) for how in ("push", "pull"))
        np.testing.assert_allclose(pulled.time.values, pushed.time.values, rtol=1e-12)


def test_what_does_not_go_together_is_refused():
    class OwnNetwork:
        def sample(self, code, rounds, rng):
            return SETTING.sample(code, rounds, rng)

        def deliver(self, code, ready):
            return ready + 1

    code = codes.cluster(codes.uncoded_mmc(3, load=2), times=2)
    with pytest.raises(Invalid, match="cluster_stop"):
        simulate(code, SETTING, Deadline(1.0), rounds=2, sending="cluster_stop", transfer="pull")
    with pytest.raises(Invalid, match="what a note costs"):
        simulate(code, OwnNetwork(), rounds=2, transfer="pull")
    with pytest.raises(Invalid, match='"push" or "pull"'):
        simulate(code, SETTING, rounds=2, transfer="both")
