"""Time = a + b work: told from traces where that is possible, and counted by fits and planners."""

import numpy as np
import pytest

from unstraggle import Deadline, Invalid, codes, simulate
from unstraggle.app.cli.measure_rounds import uneven_shares
from unstraggle.latency import Exponential, FixedCost, Heterogeneous, Network, ShiftedExponential, fit, fixed_cost
from unstraggle.plan import auto, deadline, redundancy
from unstraggle.testing import check_code
from unstraggle.trace import from_seconds


def speeds(rounds=100, n=4, seed=0):
    return 0.2 + np.random.default_rng(seed).exponential(0.1, (rounds, n, 1))


def uneven(cost, rounds=100, noise=0.0, seed=0):
    """Workers with a quarter of a share and three quarters of it."""
    work, rng = np.array([0.25, 0.75]), np.random.default_rng(seed + 1)
    return from_seconds(
        (cost + speeds(rounds, seed=seed) * work) * (1 + noise * rng.standard_normal((rounds, 4, 2))), work=work
    )


def test_tasks_of_different_work_tell_the_cost():
    assert fixed_cost(uneven(0.05)).seconds == pytest.approx(0.05)
    noisy = fixed_cost(uneven(0.05, noise=0.02))
    assert noisy.known and noisy.ci95[0] < 0.05 < noisy.ci95[1] and noisy.ci95[1] - noisy.ci95[0] < 0.01
    nothing = fixed_cost(uneven(0.0, noise=0.02))
    assert not nothing.known and nothing.ci95[0] < 0 < nothing.ci95[1]


def test_it_says_when_it_cannot_be_told():
    same = fixed_cost(from_seconds(0.05 + speeds() * [0.5, 0.5], work=0.5))
    assert np.isnan(same.seconds) and "same work" in str(same) and same.to_dict()["seconds"] is None
    assert "20 are needed" in fixed_cost(uneven(0.05, rounds=4)).why
    other_workers = from_seconds(0.05 + speeds() * np.array([[0.5], [0.5], [1.0], [1.0]]), work=[[0.5], [0.5], [1.0], [1.0]])
    assert fixed_cost(other_workers).why, "workers of different speed do not stand in for tasks of different work"
    with pytest.raises(Invalid, match="same workers"):
        fixed_cost(uneven(0.1), from_seconds(speeds(n=3)))


def test_traces_of_different_sizes_tell_it_together():
    whole, pieces = from_seconds(0.05 + speeds()), from_seconds(0.05 + speeds(seed=1) * np.full(4, 0.25), work=0.25)
    found = fixed_cost(whole, pieces)
    assert found.known and found.seconds == pytest.approx(0.05, abs=0.02)
    assert "in all traces" in fixed_cost(whole, whole).why


def test_fit_takes_the_cost_off_first():
    found = fit(uneven(0.05, rounds=500))
    assert isinstance(found.best, FixedCost) and found.best.seconds == pytest.approx(0.05)
    assert found.best.base.shift == pytest.approx(0.2, abs=0.01) and "Fixed cost per task: 0.05 s" in str(found)
    assert fit(from_seconds(speeds(500))).fixed.why and fit(speeds(500)[:, :, 0]).fixed is None


def test_the_code_that_measures_it():
    code = uneven_shares(3)
    check_code(code)
    drawn = FixedCost(Exponential(5.0), 0.1).durations(code, 50, np.random.default_rng(0)).reshape(50, 3, 2)
    assert fixed_cost(from_seconds(drawn, work=[0.25, 0.75])).seconds == pytest.approx(0.1)


def test_planners_count_it():
    """A cost per task is paid for every redundant one: it takes the gain from codes."""
    base = ShiftedExponential(rate=10, shift=0.01)
    free, dear = (redundancy(model, 8, rounds=1500) for model in (base, FixedCost(base, 0.3)))
    assert free.params["s"] > 0 and dear.name == "uncoded(8)"
    late = deadline(FixedCost(ShiftedExponential(rate=1, shift=1), 0.5), n=6)
    assert late.params["tau"] > deadline(ShiftedExponential(rate=1, shift=1), n=6).params["tau"] + 0.4
    heard = simulate(
        late, FixedCost(ShiftedExponential(rate=1, shift=1), 0.5), Deadline(late.params["tau"]), rounds=4000, rng=0
    )
    assert heard.messages.mean == pytest.approx(6 - sum(late.params["p"]), rel=0.05)


def test_auto_counts_the_cost_and_the_links():
    slow = np.where(np.random.default_rng(3).random((60, 4, 1)) < 0.2, 8.0, 1.0)
    advice = auto(from_seconds(0.5 + slow * [0.25, 0.75], work=[0.25, 0.75]), max_load=2)
    wait = next(c for c in advice.candidates if c.name == "wait for all")
    assert wait.time == pytest.approx(0.5 + slow[30:].max(axis=1).mean())
    narrow = auto(Exponential(10), n=4, rounds=400, max_load=2, dim=1000, master=4e4)
    assert min(c.time for c in narrow.candidates if c.exact) > 0.1 and narrow.candidates[0].volume < 4
    later = auto(Exponential(10), n=4, rounds=400, max_load=2, round_trip=1.0)
    assert min(c.time for c in later.candidates) > 1.0


BAD = {
    "negative": (lambda: FixedCost(Exponential(1), -1.0), "seconds >= 0"),
    "no model": (lambda: FixedCost(3, 1.0), "latency model"),
    "other workers": (
        lambda: FixedCost(Exponential(1), (1.0, 2.0)).sample(codes.uncoded(3), 1, np.random.default_rng(0)),
        "2 workers",
    ),
    "no link": (lambda: Network(Exponential(1), dim=1, master=0.0), "master > 0"),
    "no speed": (lambda: Heterogeneous([FixedCost(Exponential(1), 1.0)]), "combines latency models"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    make, words = BAD[name]
    with pytest.raises(Invalid, match=words):
        make()
