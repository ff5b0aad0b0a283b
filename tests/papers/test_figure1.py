"""Figure 1 of the multi-message paper: its table, closed forms, and other parameters."""

import csv
import json

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import betainc

from unstraggle import codes, simulate
from unstraggle.latency import ShiftedExponential
from unstraggle.papers.mmc_clustering.figure1 import Setting, figure1, order_statistic, reproduce_figure1

PAPER = ShiftedExponential(rate=10, shift=0.01)
ROUNDS = 200_000

TABLE = {
    "UC-MMC": (codes.uncoded_mmc(40, 10), 0.1689, 106.04, None),
    "GC-MMC-1": (codes.cluster(codes.correlated_mmc(10, 10, 6), times=4), 0.2719, 42.49, 21.46),
    "GC-MMC-2": (codes.cluster(codes.uncorrelated_mmc(10, 10, [6, 8, 10]), times=4), 0.4392, 43.73, 28.0),
    "hybrid": (codes.hybrid(codes.cluster(codes.uncorrelated_mmc(10, 10, [6, 8, 10]), times=4)), 0.3040, 30.07, 17.79),
    "FRC": (codes.fractional_repetition(40, 9), 0.308333, 7.486, 4.0),
    "GC P=2": (codes.cluster(codes.cyclic_repetition(20, 9), times=2), 1.000963, 23.95, 22.0),
    "correlated P=1": (codes.correlated_mmc(40, 10, 6), 0.3827, 63.09, None),
    "correlated P=2": (codes.cluster(codes.correlated_mmc(20, 10, 6), times=2), 0.3379, 54.90, None),
    "order 1, P=4": (codes.cluster(codes.correlated_mmc(10, 10, 1), times=4), 0.1673, 105.10, None),
}


@pytest.mark.parametrize("name", TABLE)
def test_table_of_the_figure(name):
    code, time, load, cluster_stop = TABLE[name]
    result = simulate(code, PAPER, rounds=ROUNDS, rng=1)
    assert result.time.mean == pytest.approx(time, rel=0.02)
    assert result.messages.mean == pytest.approx(load, rel=0.02)
    if cluster_stop is not None:
        early = simulate(code, PAPER, rounds=ROUNDS, rng=1, sending="cluster_stop")
        assert early.messages.mean == pytest.approx(cluster_stop, rel=0.02)


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def within_four_errors(sample, exact):
    return abs(sample.mean - exact) <= 4 * sample.se


@pytest.mark.parametrize("n, load, rate, shift", [(40, 10, 10, 0.01), (12, 4, 2.0, 0.5), (30, 7, 0.3, 0.0)])
def test_gradient_coding_and_lagrange_match_their_closed_forms(n, load, rate, shift):
    latency = ShiftedExponential(rate, shift)
    coded = simulate(codes.cyclic_repetition(n, load - 1), latency, rounds=20_000, rng=2)
    assert within_four_errors(coded.time, load * (shift + (harmonic(n) - harmonic(load - 1)) / rate))
    assert (coded.messages.values == n - load + 1).all()
    threshold = 2 * -(-n // load) - 1
    interpolated = simulate(codes.lagrange(n, load), latency, rounds=20_000, rng=3)
    assert within_four_errors(interpolated.time, load * (shift + (harmonic(n) - harmonic(n - threshold)) / rate))
    assert (interpolated.messages.values == threshold).all()


@pytest.mark.parametrize("messages", [2, 4])
def test_several_messages_of_lagrange_end_with_the_last_that_is_needed(messages):
    """Against order statistics: the threshold-th of all messages, each after its share of the worker's tasks."""
    code = codes.lagrange(30, 8, messages)
    result = simulate(code, PAPER, rounds=10_000, rng=7)
    speed = 0.01 + np.random.default_rng(8).exponential(0.1, (10_000, 30, 1))
    times = np.sort((speed * (np.arange(messages) + 1) * (8 // messages)).reshape(10_000, -1))[:, code.threshold - 1]
    assert (result.messages.values == code.threshold).all()
    assert abs(result.time.mean - times.mean()) <= 4 * np.hypot(result.time.se, times.std() / 100)


def test_values_of_the_paper_setting():
    assert order_statistic(Setting(), 31) == pytest.approx(1.549575, abs=5e-7)
    assert order_statistic(Setting(), 7) == pytest.approx(0.289745, abs=5e-7)


@pytest.mark.parametrize("n, load, rate, shift", [(40, 10, 10, 0.01), (12, 3, 2.0, 0.5), (16, 8, 1.0, 0.0)])
def test_fractional_repetition_matches_its_closed_form(n, load, rate, shift):
    result = simulate(codes.fractional_repetition(n, load - 1), ShiftedExponential(rate, shift), rounds=20_000, rng=4)
    assert within_four_errors(result.time, load * shift + harmonic(n // load) / rate)


@pytest.mark.parametrize("size, load, times, rate, shift", [(20, 10, 2, 10, 0.01), (10, 4, 3, 1.0, 0.2), (7, 2, 5, 4.0, 0.0)])
def test_clustered_gradient_coding_matches_the_integral(size, load, times, rate, shift):
    integral = quad(lambda y: 1 - betainc(size - load + 1, load, 1 - np.exp(-y)) ** times, 0, 60)[0]
    code = codes.cluster(codes.cyclic_repetition(size, load - 1), times=times)
    result = simulate(code, ShiftedExponential(rate, shift), rounds=20_000, rng=5)
    assert within_four_errors(result.time, load * (shift + integral / rate))


@pytest.mark.parametrize(
    "code, time, load",
    [
        (codes.cyclic_repetition(40, 9), 1.3056, 31),
        (codes.lagrange(40, 10), 0.7966, 7),
        (codes.fractional_repetition(40, 9), 0.8030, None),
        (codes.uncoded_mmc(40, 10), 0.2447, 85.6),
        (codes.cluster(codes.correlated_mmc(10, 10, 6), times=4), 0.5911, 38.4),
        (codes.cluster(codes.uncorrelated_mmc(10, 10, [6, 8, 10]), times=4), 0.6949, 38.9),
        (codes.hybrid(codes.cluster(codes.uncorrelated_mmc(10, 10, [6, 8, 10]), times=4)), 0.6859, 37.7),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else "",
)
def test_fresh_draws_for_every_task(code, time, load):
    """The independent-task variant of the model."""
    result = simulate(code, ShiftedExponential(10, 0.01, per="task"), rounds=20_000, rng=6)
    assert result.time.mean == pytest.approx(time, rel=0.01)
    if load is not None:
        assert result.messages.mean == pytest.approx(load, rel=0.01)


def test_other_settings_of_the_figure():
    setting = Setting(n=24, load=6, clusters=4, order=4, orders=(3, 6), latency=ShiftedExponential(rate=1, shift=0.1))
    rows = {row["scheme"]: row for row in figure1(20_000, seed=3, setting=setting)}
    for name in ("GC", "LCC", "wait for all", "fractional repetition"):
        half = rows[name]["time_ci95"][1] - rows[name]["time"]
        assert abs(rows[name]["time"] - rows[name]["time_exact"]) <= 4 * half / 1.96
    assert rows["GC-MMC-1 by span"]["time"] <= rows["GC-MMC-1"]["time"]
    assert rows["GC-MMC-2 hybrid"]["time"] <= min(rows["GC-MMC-2"]["time"], rows["fractional repetition"]["time"])


def test_reproduction_writes_picture_table_and_data(tmp_path):
    rows = reproduce_figure1(tmp_path, rounds=500, seed=1)
    assert (tmp_path / "mmc-fig1.png").stat().st_size > 20_000 and (tmp_path / "mmc-fig1.pdf").stat().st_size > 5_000
    data = json.loads((tmp_path / "mmc-fig1.json").read_text())
    assert data["rows"] == rows and data["rounds"] == 500
    with (tmp_path / "mmc-fig1.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["scheme"] for row in table] == [row["scheme"] for row in rows] and len(rows) == 14
