"""Block sizes: the golden cases of paper B, its table, the certificate, and rivals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstraggle import Invalid, Recovered, codes, simulate
from unstraggle.latency import (
    Empirical,
    Exponential,
    Gamma,
    Heterogeneous,
    LogNormal,
    Pareto,
    Replay,
    ShiftedExponential,
    TwoSpeed,
    Weibull,
)
from unstraggle.papers.block_coordinate import example
from unstraggle.plan import block_sizes
from unstraggle.plan.block_sizes import METHODS, levels, rounded
from unstraggle.plan.rivals import equaliser, project, tandon_work
from unstraggle.plan.runtime import Exact, Sampled, expected, runtime

PAPER = ShiftedExponential(rate=1e-3, shift=50)
DIM, SAMPLES = 20_000, 50

FIG4A = {  # N: optimum, x^(t), x^(f), single, Tandon, Ferdinand r=L/2, Jensen; and the authors' optimum
    10: (2.339, 2.612, 2.552, 3.000, 3.948, 2.727, 1.663, 2.41),
    20: (2.821, 3.155, 3.138, 4.000, 5.626, 3.803, 2.078, 2.87),
    30: (3.251, 3.620, 3.627, 5.000, 6.659, 4.837, 2.464, 3.30),
    40: (3.642, 4.033, 4.053, 6.000, 7.399, 5.857, 2.815, 3.68),
    50: (3.996, 4.403, 4.430, 7.000, 7.970, 6.869, 3.137, 4.03),
}
FIG4B = {  # log10 mu at N = 20: optimum, x^(t), x^(f), single, Tandon; and the authors' optimum
    -3.4: (5.795, 6.762, 6.473, 7.024, 13.95, 5.90),
    -3.2: (3.997, 4.572, 4.475, 5.170, 8.848, 4.09),
    -2.8: (2.030, 2.215, 2.223, 3.262, 3.592, 2.08),
    -2.6: (1.479, 1.577, 1.586, 2.796, 2.313, 1.56),
}


def value(latency, n, method, dim=DIM, **options):
    """Expected runtime in the units of the paper's figures: 1e7, times N / 50."""
    return block_sizes(latency, n, dim, method, samples=SAMPLES, **options).cost * n / 50 / 1e7


@pytest.mark.parametrize("n", FIG4A)
def test_figure_4a(n):
    optimum, by_time, by_frequency, single, tandon, ferdinand, jensen, authors = FIG4A[n]
    plan = block_sizes(PAPER, n, DIM, samples=SAMPLES)
    found, bound = plan.cost * n / 50 / 1e7, plan.bound * n / 50 / 1e7
    assert found == pytest.approx(optimum, rel=0.003) and bound <= found <= 1.002 * bound and found <= authors
    assert value(PAPER, n, "time") == pytest.approx(by_time, rel=0.005)
    assert value(PAPER, n, "frequency") == pytest.approx(by_frequency, rel=0.005)
    assert value(PAPER, n, "single") == pytest.approx(single, rel=1e-5)
    assert value(PAPER, n, "ferdinand") == pytest.approx(single, rel=1e-5), "with a layer a coordinate the same"
    assert value(PAPER, n, "tandon") == pytest.approx(tandon, rel=0.005)
    assert value(PAPER, n, "ferdinand", layers=DIM // 2) == pytest.approx(ferdinand, rel=0.005)
    assert plan.params["jensen"] * n / 50 / 1e7 == pytest.approx(jensen, rel=0.001)


@pytest.mark.parametrize("exponent", FIG4B)
def test_figure_4b(exponent):
    optimum, by_time, by_frequency, single, tandon, authors = FIG4B[exponent]
    latency = ShiftedExponential(rate=10.0**exponent, shift=50)
    assert value(latency, 20, "optimal") == pytest.approx(optimum, rel=0.003) and value(latency, 20, "optimal") <= authors
    assert value(latency, 20, "time") == pytest.approx(by_time, rel=0.005)
    assert value(latency, 20, "frequency") == pytest.approx(by_frequency, rel=0.005)
    assert value(latency, 20, "single") == pytest.approx(single, rel=0.005)
    assert value(latency, 20, "tandon") == pytest.approx(tandon, rel=0.005)


def test_figure_3_vectors():
    by_time = [5696, 1076, 609, 444, 366, 325, 303, 294, 294, 303, 321, 349, 390, 448, 534, 663, 868, 1222, 1912, 3583]
    by_frequency = [5521, 939, 549, 408, 340, 305, 287, 282, 285, 297, 318, 351, 398, 466, 565, 715, 953, 1356, 2091, 3574]
    for method, expected_sizes in (("time", by_time), ("frequency", by_frequency)):
        sizes = np.array(block_sizes(PAPER, 20, DIM, method).params["sizes"])
        assert np.abs(sizes - expected_sizes).max() <= 3 and sizes.sum() == DIM
    best = block_sizes(PAPER, 20, DIM).params["sizes"]
    assert best[0] == pytest.approx(4784, rel=0.02) and best[-1] == pytest.approx(8904, rel=0.02)


def test_figure_1_of_the_paper():
    """N = L = 4, T = (.1, .1, .25, 1): s = 1 takes 2.0, s = 2 takes 1.2, s = (1, 1, 2, 2) takes 1.0."""
    model = Sampled(np.array([[0.1, 0.1, 0.25, 1.0]]), exact=True)
    for sizes, time in (((0, 4, 0, 0), 2.0), ((0, 0, 4, 0), 1.2), ((0, 2, 2, 0), 1.0)):
        assert expected(model, np.cumsum(np.arange(1, 5) * np.array(sizes, dtype=float))) == pytest.approx(time)


def test_golden_codes_of_figure_1():
    one = np.array([[1, -1, 0, 0], [0, 1, 1, 0], [0, 0, 1, -1], [1, 0, 0, 1]])
    two = np.array([[1, 1 / 3, 2 / 3, 0], [0, 1, 1 / 2, 3 / 2], [2, 0, 1, -1], [-1 / 2, 1 / 2, 0, 1]])
    for matrix, s in ((one, 1), (two, 2)):
        for gone in range(4):
            rows = np.delete(matrix, [gone] if s == 1 else [gone, (gone + 1) % 4], axis=0)
            weights = np.linalg.lstsq(rows.T, np.ones(4), rcond=None)[0]
            assert weights @ rows == pytest.approx(np.ones(4))


def test_figure_2_pairs():
    assert levels(np.array([0, 2, 3, 1])).tolist() == [1, 1, 2, 2, 2, 3]
    assert levels(np.array([1, 3, 0, 2])).tolist() == [0, 1, 1, 1, 3, 3]


def test_figures_1_and_2_are_drawn_from_the_same_numbers(tmp_path):
    assert [row["runtime"] for row in example.reproduce_figure1(tmp_path)] == [2.0, 1.2, 1.0]
    for row in example.reproduce_figure2(tmp_path):
        sizes, of_each = (np.array([int(one) for one in row[key].split()]) for key in "xs")
        assert levels(sizes).tolist() == of_each.tolist()
    assert {path.name for path in tmp_path.glob("*.png")} == {"bcgc-fig1.png", "bcgc-fig2.png"}


@given(st.lists(st.integers(0, 6), min_size=2, max_size=7).filter(any), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_sizes_and_levels_are_the_same_design(sizes, seed):
    """Theorem 1: eq. 2 over coordinates equals eq. 5 over blocks, and the mapping between them is one to one."""
    sizes, n = np.array(sizes), len(sizes)
    s = levels(sizes)
    assert np.array_equal(np.bincount(s, minlength=n), sizes)
    times = np.sort(np.random.default_rng(seed).exponential(size=n))
    by_coordinate = max(times[n - 1 - s[i]] * (s[: i + 1] + 1).sum() for i in range(len(s)))
    by_block = expected(Sampled(times[None, :], exact=True), np.cumsum(np.arange(1, n + 1) * sizes.astype(float)))
    assert by_block == pytest.approx(by_coordinate)


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=12, unique=True))
@settings(max_examples=100, deadline=None)
def test_closed_form_equalises_all_blocks(times):
    t = np.sort(times)
    sizes, end = equaliser(1 / t)
    assert t[::-1] * np.cumsum(np.arange(1, len(t) + 1) * sizes) == pytest.approx(np.full(len(t), end))
    assert sizes.sum() == pytest.approx(1) and (sizes >= 0).all()


FAMILIES = [
    PAPER,
    Weibull(shape=0.8, scale=10, shift=1),
    Pareto(shape=2.5, scale=2),
    LogNormal(mu=0, sigma=1, shift=0.5),
    Gamma(shape=2, shift=0.2),
    Exponential(rate=1),
]


@pytest.mark.parametrize("latency", FAMILIES, ids=repr)
@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_exact_runtime_equals_simulation_and_order_statistics(latency, n):
    model = runtime(latency, n)
    assert isinstance(model, Exact)
    assert expected(model, np.ones(n)) == pytest.approx(latency.order_statistics(n)[-1], rel=1e-5), "one block, all workers"
    work = np.cumsum(np.arange(1, n + 1) * np.random.default_rng(n).dirichlet(np.ones(n)))
    sampled = Sampled(np.sort(latency.draw((100_000, n), np.random.default_rng(3)), axis=1))
    assert abs(expected(model, work) - expected(sampled, work)) <= 4.5 * sampled.error(work)


@pytest.mark.parametrize("latency", FAMILIES[:3], ids=repr)
def test_exact_gradient_is_the_derivative(latency):
    model, work = runtime(latency, 6), np.array([1.0, 1.7, 2.1, 3.0, 3.2, 4.5])
    slope = model.gradient(work)
    for i in range(6):
        step = 1e-4 * np.eye(6)[i]
        numeric = (expected(model, work + step) - expected(model, work - step)) / 2e-4
        assert slope[i] == pytest.approx(numeric, rel=2e-3, abs=1e-5 * slope.max())


@pytest.mark.parametrize("latency", [*FAMILIES, Pareto(shape=0.9), TwoSpeed(fast=1, slow=5, p=0.3)], ids=repr)
@pytest.mark.parametrize("n", [2, 12])
def test_optimum_is_certified_and_beats_everybody(latency, n):
    best = block_sizes(latency, n, 5000)
    assert best.bound <= best.cost and best.params["jensen"] <= best.cost * (1 + 1e-5)
    if latency.continuous:
        assert best.cost <= 1.004 * best.bound
    for method in METHODS[1:]:
        rival = block_sizes(latency, n, 5000, method, **({"iterations": 20, "batch": 500} if method == "subgradient" else {}))
        assert best.cost <= rival.cost * 1.002 + 3 * (rival.ci95[1] - rival.cost if np.isfinite(rival.cost) else 0)


def test_measured_rounds_are_solved_exactly():
    times = PAPER.draw((40, 8), np.random.default_rng(1))
    best = block_sizes(Replay(times), 8, 100_000)
    assert best.cost == pytest.approx(best.bound, rel=1e-3) and best.ci95[0] == best.ci95[1] == best.cost
    for method in ("time", "frequency", "single"):
        assert best.bound <= block_sizes(Replay(times), 8, 100_000, method).cost
    again = block_sizes(Empirical(times), 8, 100_000)
    assert again.cost == pytest.approx(best.cost)


def test_pooled_times_and_unequal_workers():
    pooled = block_sizes(Empirical(PAPER.draw((1, 500), np.random.default_rng(2))[0]), 10, DIM)
    assert pooled.bound <= pooled.cost <= 1.05 * pooled.bound and pooled.ci95[0] < pooled.cost < pooled.ci95[1]
    mixed = block_sizes(Heterogeneous([PAPER] * 6 + [ShiftedExponential(rate=1e-4, shift=50)] * 2), 8, DIM)
    assert mixed.bound <= mixed.cost <= 1.05 * mixed.bound


def test_the_plan_is_a_code_whose_rounds_take_that_long():
    """Natural units: the latency is that of a unit of work, the cost the mean time of a round."""
    latency = ShiftedExponential(rate=2, shift=0.2)
    plan = block_sizes(latency, 6, 1000)
    assert plan.code.n == 6 and len(plan.code.blocks) == np.count_nonzero(plan.params["sizes"])
    result = simulate(plan.code, latency, plan.stop, rounds=100_000, rng=1)
    assert abs(result.time.mean - plan.cost) <= 4 * result.time.se
    arrivals = latency.sample(plan.code, 50, np.random.default_rng(0))
    assert (Recovered("span").time(plan.code, arrivals) <= Recovered("rule").time(plan.code, arrivals)).all()


def test_tandon_plan_is_a_code_whose_rounds_take_that_long():
    latency = ShiftedExponential(rate=2, shift=0.2)
    for method in ("tandon", "tandon_tuned"):
        plan = block_sizes(latency, 6, 1000, method)
        result = simulate(plan.code, latency, rounds=100_000, rng=1)
        assert abs(result.time.mean - plan.cost) <= 4 * result.time.se
    assert tandon_work(5, 2, 3.0).tolist() == [1, 1, 3, 3, 3]


def test_tuned_tandon_is_a_strong_rival():
    """At N = 10 and 20 it beats both closed forms of the paper, and loses to the optimum."""
    for n in (10, 20):
        tuned = value(PAPER, n, "tandon_tuned")
        assert value(PAPER, n, "optimal") < tuned < min(value(PAPER, n, "time"), value(PAPER, n, "frequency"))
        assert tuned < value(PAPER, n, "tandon")


def test_blocks_of_unequal_cost():
    """Layers: the work is planned, the coordinates follow; equal costs change nothing."""
    latency = ShiftedExponential(rate=1, shift=0.1)
    flat = block_sizes(latency, 5, 400)
    equal = block_sizes(latency, 5, 400, costs=[3.0] * 400)
    assert equal.cost == pytest.approx(flat.cost, rel=0.01)
    layers = block_sizes(latency, 5, 12, costs=[8, 8, 4, 4, 2, 2, 1, 1, 1, 1, 1, 1])
    assert sum(layers.params["sizes"]) == 12 and sum(layers.params["work"]) == pytest.approx(1)
    result = simulate(layers.code, latency, rounds=100_000, rng=1)
    assert abs(result.time.mean - layers.cost) <= 4 * result.time.se


def test_subgradient_method_comes_near():
    plan = block_sizes(PAPER, 10, DIM, "subgradient", iterations=150, batch=2000)
    assert plan.cost <= 1.06 * block_sizes(PAPER, 10, DIM).cost


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.1, 50))
@settings(max_examples=100, deadline=None)
def test_projection(point, total):
    nearest = project(np.array(point), total)
    assert nearest.sum() == pytest.approx(total) and (nearest >= 0).all()
    assert project(nearest, total) == pytest.approx(nearest, abs=1e-9)
    other = np.full(len(point), total / len(point))
    assert np.linalg.norm(nearest - point) <= np.linalg.norm(other - point) + 1e-9


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20).filter(lambda v: sum(v) > 1e-3), st.integers(1, 500))
@settings(max_examples=100, deadline=None)
def test_rounding(sizes, dim):
    counts = rounded(np.array(sizes), dim)
    exact = np.array(sizes) * dim / sum(sizes)
    assert counts.sum() == dim and (counts >= 0).all() and (np.abs(counts - exact) <= 1).all()


def test_bounds_of_theorem_4():
    """x^(t) and x^(f) stay within the paper's (loose) factors of the optimum."""
    for n in (5, 20, 50):
        harmonic, load = sum(1 / i for i in range(1, n + 1)), 1e-3 * 50
        best = block_sizes(PAPER, n, DIM).bound
        assert block_sizes(PAPER, n, DIM, "time").cost <= best * (harmonic + 1) * (harmonic + load) / load**2
        assert block_sizes(PAPER, n, DIM, "frequency").cost <= best * (harmonic / load + 1)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: block_sizes(PAPER, 0, 10), "n=0"),
        (lambda: block_sizes(PAPER, 5, 0), "dim=0"),
        (lambda: block_sizes(PAPER, 5, 10, "magic"), "'magic'"),
        (lambda: block_sizes(PAPER, 5, 10, samples=-1), "samples=-1"),
        (lambda: block_sizes(PAPER, 5, 10, cycles=float("nan")), "cycles=nan"),
        (lambda: block_sizes(PAPER, 5, 10, costs=[1.0] * 9), "dim=10 groups"),
        (lambda: block_sizes(ShiftedExponential(1, per="task"), 5, 10), 'per="round"'),
        (lambda: block_sizes(Replay([[1.0, 2.0]]), 3, 10), "2 workers"),
        (lambda: block_sizes(Pareto(shape=0.1), 5, 10), "no block size helps"),
        (lambda: block_sizes(PAPER, 5, 10, "ferdinand", layers=99), "layers=99"),
        (lambda: codes.blocks([1, 1], codes.uncoded(2), codes.uncoded(2), work=[1]), "each of its 2 codes"),
    ],
    ids=range(11),
)
def test_bad_input(call, words):
    with pytest.raises(Invalid) as caught:
        call()
    assert words in str(caught.value)


def test_one_worker_and_one_coordinate():
    assert block_sizes(PAPER, 1, 10).params["sizes"] == [10]
    assert sum(block_sizes(PAPER, 5, 1).params["sizes"]) == 1
    assert block_sizes(Empirical([2.0]), 4, 100).params["sizes"] == [100, 0, 0, 0], "constant times need no redundancy"


@pytest.mark.slow
def test_thousand_workers():
    plan = block_sizes(PAPER, 1000, 1_000_000)
    assert plan.cost < block_sizes(PAPER, 1000, 1_000_000, "frequency").cost
    assert plan.params["jensen"] < plan.cost and 0 < plan.bound < plan.cost
