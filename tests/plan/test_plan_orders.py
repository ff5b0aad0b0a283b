"""The search for clusters, designs and orders: fast evaluation against real codes, the front, its limits and its inputs."""

import json

import numpy as np
import pytest

from unstraggle import Invalid, Recovered, simulate
from unstraggle.app.plots import front as picture
from unstraggle.latency import Bernoulli, Empirical, Exponential, Heterogeneous, Network, Replay, ShiftedExponential
from unstraggle.papers import FIGURES
from unstraggle.papers.mmc_clustering.figure1 import Setting
from unstraggle.papers.mmc_clustering.front import front as paper_front
from unstraggle.papers.mmc_clustering.front import reproduce_front, work_conserving
from unstraggle.plan import Front, orders
from unstraggle.plan.designs import (
    Design,
    all_vectors,
    cluster_counts,
    different_designs,
    floor_clock,
    progressions,
    rule_clock,
    shared_designs,
    span_clock,
)
from unstraggle.plan.draws import Draws, sent
from unstraggle.plan.front import pareto
from unstraggle.scheme.noise import set_noise_gain, survivor_sets

PAPER = ShiftedExponential(rate=10, shift=0.01)
MIXED = Heterogeneous(([Exponential(10)] * 2 + [Exponential(2)]) * 4)
SORTED = Heterogeneous([Exponential(10)] * 8 + [Exponential(2)] * 4)
SMALL = [*shared_designs(12, 4), *different_designs(12, 4, all_vectors(4))]


def arrivals(latency, design, rounds=400, load=None):
    draws = Draws(latency, design.clusters * design.size, load or design.steps[-1], rounds, np.random.default_rng(5))
    return np.concatenate(list(draws.arrivals(design.steps, design.clusters)))


@pytest.mark.parametrize("latency", [PAPER, ShiftedExponential(10, 0.01, per="task"), SORTED], ids=["round", "task", "mixed"])
def test_rule_equals_the_real_codes_round_by_round(latency):
    for design in SMALL:
        code, times = design.build(), arrivals(latency, design)
        assert code.name == design.name and code.n == 12
        ends = Recovered("rule").time(code, times.reshape(len(times), -1))
        assert np.array_equal(rule_clock(design)(times), ends), design
        counted = (times.reshape(len(times), -1) <= ends[:, None]).sum(axis=1)
        assert np.array_equal(sent(times, ends), counted)


def test_span_equals_the_real_codes_round_by_round():
    for design in SMALL[::2]:
        code, times = design.build(), arrivals(PAPER, design)
        ends = Recovered("span").time(code, times.reshape(len(times), -1))
        assert np.array_equal(span_clock(design)(times), ends), design
        assert np.array_equal(span_clock(design, real=False)(times), ends), design
        assert (ends <= rule_clock(design)(times)).all()
        assert design.gains_by_span or np.array_equal(ends, rule_clock(design)(times))


@pytest.mark.parametrize("clusters, size", [(1, 40), (2, 20), (4, 10)])
@pytest.mark.parametrize("steps", [(1, 4, 7, 10), (2, 5, 10), (6, 8, 10), (9, 10)])
def test_random_coefficients_tell_the_time_by_span(clusters, size, steps):
    for kind in ("uncorrelated", "hybrid") if size == 10 else ("uncorrelated",):
        design = Design(clusters, size, steps, kind)
        times = arrivals(PAPER, design, rounds=100)
        real, floor = span_clock(design)(times), floor_clock(design)(times)
        assert np.array_equal(span_clock(design, real=False)(times), real)
        assert (floor <= real).all() and (real <= rule_clock(design)(times)).all()


def test_thresholds_are_those_of_the_codes():
    for design in SMALL:
        if design.kind != "hybrid" and design.clusters == 1:
            assert design.build().threshold == design.threshold


def test_candidates():
    assert cluster_counts(40, 10) == [1, 2, 4] and cluster_counts(12, 12) == [1] and cluster_counts(7, 2) == [1]
    assert len(all_vectors(10)) == 2**10 - 11
    assert len({(d.clusters, d.steps, d.kind) for d in SMALL}) == len(SMALL)
    assert (1, 4, 7, 10, 13) in progressions(14) and (1, 4, 7, 10, 13, 14) in progressions(14)


@pytest.fixture(scope="module")
def paper():
    """The setting of [A] figure 1, with all order vectors; rounds start with free workers there."""
    return orders(PAPER, 40, 10, rounds=3000, rng=3, carry=False)


def test_front_is_pareto(paper):
    times, messages = [plan.cost for plan in paper], [plan.messages for plan in paper]
    assert len(paper) > 15 and (np.diff(messages) > 0).all() and (np.diff(times) < 0).all()
    assert all(plan.bound < plan.cost and plan.ci95[0] < plan.cost < plan.ci95[1] for plan in paper)


@pytest.mark.parametrize("messages, time", [(7.6, 0.309), (42.6, 0.272), (107, 0.170)])
def test_front_is_at_least_as_good_as_the_paper(paper, messages, time):
    """Each point is measured again, on other draws than those it was chosen on."""
    plan = paper.best(messages)
    result = simulate(plan.code, PAPER, plan.stop, rounds=200_000, rng=1)
    assert result.time.mean <= time and result.messages.mean <= messages


def test_span_finds_what_the_rule_cannot(paper):
    """By span a hybrid with few messages beats everything by rule; by its own rule it is far slower."""
    by_rule = orders(PAPER, 40, 10, by="rule", rounds=3000, carry=False)
    plan = paper.best(60)
    assert plan.stop == Recovered("span") and plan.cost < 0.87 * by_rule.best(60).cost
    span, rule = (simulate(plan.code, PAPER, rounds=8000, rng=2, by=by) for by in ("span", "rule"))
    assert span.time.mean < 0.8 * rule.time.mean and span.messages.mean < rule.messages.mean
    assert all(p.stop == Recovered("rule") for p in by_rule)


def test_estimates_agree_with_simulation(paper):
    for plan in paper.plans[::6]:
        result = simulate(plan.code, PAPER, plan.stop, by=plan.stop.by, rounds=8000, rng=4)
        error = (plan.ci95[1] - plan.ci95[0]) / 2 / 1.96
        assert abs(plan.cost - result.time.mean) <= 4 * np.hypot(error, result.time.se)
        assert plan.messages == pytest.approx(result.messages.mean, rel=0.03)


def test_plans_by_span_really_decode(paper):
    for plan in [plan for plan in paper if plan.stop == Recovered("span")][::5]:
        times = PAPER.sample(plan.code, 50, np.random.default_rng(6))
        got = times <= plan.stop.time(plan.code, times)[:, None]
        decoded = plan.code.decoder.weights(got)[:, 0] @ plan.code.messages.coef.toarray()
        assert np.abs(decoded - 1).max() < 1e-6


def test_front_prints_and_serialises(paper):
    lines = str(paper).splitlines()
    assert len(lines) == 1 + len(paper) and "fractional_repetition(40, s=9)" in lines[1] and "uncoded_mmc" in lines[-1]
    assert len(json.loads(json.dumps(paper.to_dict()))["plans"]) == len(paper)
    assert paper[0].params["orders"] == [10] and paper[0].params["clusters"] == 4
    assert picture(paper).axes[0].get_xlabel().startswith("messages")
    with pytest.raises(Invalid, match="cheapest sends 7"):
        paper.best(3)


def test_equal_seeds_give_equal_fronts():
    first, again, other = (orders(PAPER, 8, 3, rounds=500, rng=seed) for seed in (1, 1, 2))
    assert str(first) == str(again) and str(first) != str(other)


@pytest.mark.parametrize("latency", [SORTED, MIXED], ids=["fast first", "mixed"])
def test_workers_that_differ(latency):
    by_rule, by_span = (orders(latency, 12, 4, by=by, rounds=4000, carry=False) for by in ("rule", "span"))
    for plan in by_rule:
        assert by_span.best(plan.messages * 1.001).cost <= plan.cost * 1.01
    both = orders(latency, 12, 4, rounds=4000, carry=False)
    assert both.best().cost <= by_rule.best().cost


def test_mixing_fast_and_slow_workers_pays():
    assert orders(MIXED, 12, 4, rounds=2000).best().cost < orders(SORTED, 12, 4, rounds=2000).best().cost


MODELS = {
    "task": Exponential(10, per="task"),
    "network": Network(Exponential(10), dim=1000, bandwidth=1e6, round_trip=0.01),
    "empirical": Empirical(np.random.default_rng(0).exponential(size=500)),
    "rounds": Empirical(np.random.default_rng(0).exponential(size=(200, 8))),
}


@pytest.mark.parametrize("carry", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_any_latency_model_will_do(name, carry):
    found = orders(MODELS[name], 8, 4, rounds=2000, carry=carry)
    for plan in (found[0], found[-1]):
        result = simulate(plan.code, MODELS[name], plan.stop, by=plan.stop.by, rounds=8000, rng=3, carry=carry)
        error = (plan.ci95[1] - plan.ci95[0]) / 2 / 1.96
        assert abs(plan.cost - result.time.mean) <= 4 * np.hypot(error, result.time.se)
        assert (plan.bound is None) == (name == "network")


def test_replayed_rounds_are_used_as_they_are():
    trace = np.random.default_rng(1).exponential(size=(60, 8))
    plan = orders(Replay(trace), 8, 4, by="rule", rounds=60, carry=False)[0]
    assert plan.cost == pytest.approx(simulate(plan.code, Replay(trace), rounds=60).time.mean)
    carried = orders(Replay(trace), 8, 4, by="rule", rounds=60)[0]  # in shorter segments than the simulator's
    assert carried.cost == pytest.approx(simulate(carried.code, Replay(trace), rounds=60, carry=True).time.mean, rel=0.05)


def test_models_that_look_at_the_partitions():
    """Where the data are slow, not the workers, a cluster has only its own partitions."""

    class SlowData:
        def sample(self, code, rounds, rng):
            from unstraggle.latency import arrivals

            return arrivals(code, np.tile(np.where(code.tasks.part == 0, 9.0, 1.0), (rounds, 1)))

    found = orders(SlowData(), 4, 2, by="rule", rounds=20, carry=False)
    for plan in found:
        assert plan.cost == simulate(plan.code, SlowData(), rounds=5).time.mean


def test_message_limit():
    free, limited = orders(PAPER, 8, 3, rounds=1000), orders(PAPER, 8, 3, rounds=1000, max_messages=8.0)
    assert free[-1].messages > 8 and all(plan.messages <= 8 for plan in limited)
    assert limited.best().cost <= free.best(8).cost * 1.02
    in_bytes = orders(PAPER, 8, 3, rounds=1000, max_bytes=8 * 4000, dim=1000)
    assert str(in_bytes) == str(limited)
    both = orders(PAPER, 8, 3, rounds=1000, max_bytes=8 * 4000, dim=1000, max_messages=6)
    assert all(plan.messages <= 6 for plan in both)


def test_noise_limit():
    found = orders(PAPER, 8, 4, rounds=1000, max_noise_gain=2.0)
    for plan in found:
        sets = survivor_sets(plan.code, 40, 0, by=plan.stop.by)
        assert max(set_noise_gain(plan.code, got) for got in sets) <= 2.0
    loud = orders(PAPER, 8, 4, rounds=1000)
    assert max(plan.code.noise_gain().worst for plan in loud) > 2.0


def test_one_worker():
    found = orders(PAPER, 1, 1, rounds=1000)
    assert [plan.name for plan in found] == ["uncoded(1)"] and found[0].messages == 1
    assert found[0].cost == pytest.approx(PAPER.mean, rel=0.1)


def test_waiting_for_all_is_on_the_front_of_workers_that_never_straggle():
    found = orders(ShiftedExponential(rate=1e6, shift=1.0), 6, 3, rounds=500)
    assert found.best().cost == pytest.approx(1, rel=1e-3) and found.best().messages <= 6


def test_many_orders_are_searched_locally():
    found = orders(PAPER, 28, 14, by="rule", rounds=1500, carry=False)
    assert found[0].name == "fractional_repetition(28, s=13)" and len(found) > 5
    uncoded = simulate(found[-1].code, PAPER, rounds=2000, rng=0).time.mean
    assert found[-1].cost == pytest.approx(uncoded, rel=0.05)


def test_progress_is_reported():
    calls = []
    orders(PAPER, 6, 3, rounds=300, progress=lambda *call: calls.append(call))
    assert {label for label, _, _ in calls} >= {"stage 1 of 4", "last stage"}
    assert all(1 <= done <= total for _, done, total in calls)


BAD = {
    "no such load": (lambda: orders(PAPER, 4, 5), "load=5"),
    "no workers": (lambda: orders(PAPER, 0, 1), "n=0"),
    "half a worker": (lambda: orders(PAPER, 2.5, 1), "n=2.5"),
    "no model": (lambda: orders("PAPER", 4, 2), "'PAPER'"),
    "no rounds": (lambda: orders(PAPER, 4, 2, rounds=1), "rounds=1"),
    "no recovery": (lambda: orders(PAPER, 4, 2, by=()), "by=()"),
    "unknown recovery": (lambda: orders(PAPER, 4, 2, by="luck"), "by='luck'"),
    "negative limit": (lambda: orders(PAPER, 4, 2, max_messages=-1), "max_messages=-1"),
    "limit not a number": (lambda: orders(PAPER, 4, 2, max_noise_gain=float("nan")), "max_noise_gain=nan"),
    "bytes of what": (lambda: orders(PAPER, 4, 2, max_bytes=100), "dim=None"),
    "too few messages": (lambda: orders(PAPER, 8, 2, max_messages=1, rounds=200), "fractional_repetition(8, s=1), sends"),
    "too quiet": (lambda: orders(PAPER, 6, 2, max_noise_gain=0.01, rounds=200), "noise gain of at most 0.01"),
    "rounds that never end": (lambda: orders(Bernoulli(0.5), 4, 2, rounds=500), "rounds all ended"),
    "times that are no numbers": (lambda: orders(Broken(), 4, 2, rounds=100), "gave nan"),
    "another number of workers": (lambda: orders(MIXED, 8, 2, rounds=100), "12 workers"),
}


class Broken:
    def sample(self, code, rounds, rng):
        return np.full((rounds, len(code.messages)), np.nan)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    make, words = BAD[name]
    with pytest.raises(Invalid) as caught:
        make()
    assert words in str(caught.value)


def test_empty_front():
    with pytest.raises(Invalid, match="No plan"):
        Front(()).best(1.0)
    assert pareto([np.inf, 2.0, 2.0], [1.0, 5.0, 5.0]) == [1]


def test_figure_with_other_parameters():
    setting = Setting(n=12, load=4, clusters=3, order=2, orders=(2, 4), latency=ShiftedExponential(rate=1, shift=0.1))
    rows = paper_front(2000, seed=1, setting=setting)
    limit = work_conserving(2000, seed=1, setting=setting)
    assert all(row["time"] > limit.mean for row in rows if row["scheme"] != "LCC")
    for name in {row["front"] for row in rows} - {""}:
        line = [row for row in rows if row["front"] == name]
        assert (np.diff([row["load"] for row in line]) > 0).all() and (np.diff([row["time"] for row in line]) < 0).all()


@pytest.mark.slow
def test_reproduction_writes_picture_table_and_data(tmp_path):
    rows = reproduce_front(tmp_path, rounds=100, seed=1)
    assert (tmp_path / "mmc-front.png").stat().st_size > 20_000 and (tmp_path / "mmc-front.pdf").stat().st_size > 5_000
    data = json.loads((tmp_path / "mmc-front.json").read_text())
    assert data["rows"] == rows and data["rounds"] == 100 and 0.06 < data["work_conserving_limit"] < 0.09
    assert {row["scheme"] for row in rows} >= {"GC", "LCC", "UC-MMC", "GC-MMC-1", "GC-MMC-2", "wait for all"}
    assert len(FIGURES["mmc-front"].table(rows)) == 1 + len(rows)
