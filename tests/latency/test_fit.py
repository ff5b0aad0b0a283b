"""fit() finds the family that made the times, and says so when none did."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from unstraggle import Invalid, codes, latency, parse_latency, simulate, trace
from unstraggle.app import plots
from unstraggle.latency import BurrXII, Empirical, Exponential, Fit, Gamma, LogNormal, Pareto, ShiftedExponential, Weibull, fit
from unstraggle.latency.likelihood import estimates, largest_shift

REAL = Path(__file__).parents[3] / "shared/data/traces/bytedance"
TRUE = {
    "Exponential": Exponential(rate=2.0),
    "ShiftedExponential": ShiftedExponential(rate=10.0, shift=0.01),
    "Pareto": Pareto(shape=2.5, scale=0.5),
    "Weibull": Weibull(shape=2.5, scale=1.0, shift=3.0),
    "Weibull, heavy": Weibull(shape=0.7, scale=1.0, shift=0.5),
    "LogNormal": LogNormal(mu=0.0, sigma=0.5, shift=1.0),
    "LogNormal, no shift": LogNormal(mu=-1.0, sigma=1.0),
    "BurrXII": BurrXII(c=3.0, d=1.5, scale=1.0, shift=2.0),
    "Gamma": Gamma(shape=2.0, scale=1.0, shift=1.0),
    "Gamma, heavy": Gamma(shape=0.6, scale=1.0, shift=1.0),
}
TOLERANCE = {"shift": 0.03, "d": 0.25, "scale": 0.1, "c": 0.1, "shape": 0.1, "rate": 0.03, "mu": 0.03, "sigma": 0.03}
"""Several standard errors at 20,000 times; shape, scale and shift of one family trade off against each other."""


def draws(model, count=20_000, seed=1):
    return model.draw((count, 1), np.random.default_rng(seed)).ravel()


@pytest.mark.parametrize("name", TRUE)
def test_the_family_and_its_parameters_are_found(name):
    model, family = TRUE[name], name.split(",")[0]
    found = fit(draws(model))
    by_name = {one.name: one for one in found.ranking}
    assert by_name[family].aic <= found.ranking[0].aic + 2 and by_name[family].passes and found.ranking[0].passes
    for parameter, allowed in TOLERANCE.items():
        if hasattr(model, parameter):
            true = getattr(model, parameter)
            assert abs(getattr(by_name[family].model, parameter) - true) <= allowed * max(abs(true), 0.3)
    assert found.best is found.ranking[0].model and "fits" in found.verdict and isinstance(found, Fit)


@pytest.mark.parametrize("seed", range(4))
def test_a_true_family_is_seldom_rejected(seed):
    for name in ("ShiftedExponential", "LogNormal", "Gamma"):
        candidates = {one.name: one for one in fit(draws(TRUE[name], 400, seed)).ranking}
        assert candidates[name].passes


def test_likelihoods_are_those_of_scipy():
    times = np.sort(draws(TRUE["Gamma"], 2000))
    found = {one.name: one for one in estimates(times)}
    gamma, weibull, normal, burr = (found[name].model for name in ("Gamma", "Weibull", "LogNormal", "BurrXII"))
    pareto, shifted, plain = (found[name].model for name in ("Pareto", "ShiftedExponential", "Exponential"))
    reference = {
        "Gamma": stats.gamma(gamma.shape, gamma.shift, gamma.scale),
        "Weibull": stats.weibull_min(weibull.shape, weibull.shift, weibull.scale),
        "LogNormal": stats.lognorm(normal.sigma, normal.shift, np.exp(normal.mu)),
        "BurrXII": stats.burr12(burr.c, burr.d, burr.shift, burr.scale),
        "Pareto": stats.pareto(pareto.shape, 0, pareto.scale),
        "ShiftedExponential": stats.expon(shifted.shift, 1 / shifted.rate),
        "Exponential": stats.expon(0, 1 / plain.rate),
    }
    assert set(reference) == set(found)
    for name, distribution in reference.items():
        assert found[name].log_likelihood == pytest.approx(distribution.logpdf(times).sum(), rel=1e-9)
        distance = {one.name: one.ks for one in fit(times).ranking}[name]
        assert distance == pytest.approx(stats.kstest(times, distribution.cdf).statistic, rel=1e-9)


def test_no_member_of_a_family_is_more_likely():
    """Small steps away from the estimate lower the likelihood."""
    times = np.sort(draws(TRUE["LogNormal"], 3000))
    found = {one.name: one for one in estimates(times)}
    gamma, weibull = found["Gamma"].model, found["Weibull"].model
    for step in (0.99, 1.01):
        for shape, scale in ((step, 1), (1, step)):
            less = stats.gamma(gamma.shape * shape, gamma.shift, gamma.scale * scale).logpdf(times).sum()
            assert less < found["Gamma"].log_likelihood
            less = stats.weibull_min(weibull.shape * shape, weibull.shift, weibull.scale * scale).logpdf(times).sum()
            assert less < found["Weibull"].log_likelihood


def test_the_shifted_exponential_is_unbiased():
    """Over many small samples: smallest time - (mean - smallest) / (n - 1), and the mean excess over it."""
    model, rng = ShiftedExponential(rate=2.0, shift=1.0), np.random.default_rng(5)
    samples = model.draw((4000, 20), rng)
    shifts = np.array([largest_shift(sample) for sample in samples])
    assert shifts.mean() == pytest.approx(1.0, abs=4 * shifts.std() / np.sqrt(4000))
    excess = samples.mean(axis=1) - shifts
    assert excess.mean() == pytest.approx(0.5, abs=4 * excess.std() / np.sqrt(4000))
    one = {e.name: e.model for e in estimates(samples[0])}["ShiftedExponential"]
    assert one.shift == shifts[0] and 1 / one.rate == pytest.approx(excess[0])


def test_times_of_no_family_are_left_as_they_are():
    rng = np.random.default_rng(2)
    times = np.concatenate([rng.normal(1.0, 0.01, 500), rng.normal(3.0, 0.01, 100)])
    found = fit(times)
    assert isinstance(found.best, Empirical) and np.array_equal(found.best.values, times)
    assert "No family fits" in found.verdict and f"{found.ranking[0].ks:.4f}" in found.verdict
    assert not any(one.passes for one in found.ranking) and len(found.ranking) == 7


def test_workers_or_rounds_that_differ_are_not_independent_times():
    rng = np.random.default_rng(3)
    alike = rng.exponential(1.0, (200, 5))
    assert fit(alike).best == fit(alike.ravel()).best == fit(trace.from_seconds(alike)).best
    unlike = fit(alike * [1, 1, 1, 1.5, 1.5])
    assert "the workers differ" in unlike.verdict and unlike.best.values.shape == (200, 5)
    slow_rounds = fit(rng.lognormal(0, 0.5, (200, 5)) * rng.lognormal(0, 0.5, (200, 1)))
    assert slow_rounds.ranking[0].passes and "the rounds differ" in slow_rounds.verdict


def test_constant_times_and_times_that_never_end():
    constant = fit(np.full(20, 2.5))
    assert constant.verdict == "Constant: all times are 2.5 s." and constant.ranking == ()
    assert (constant.best.values == 2.5).all() and "Constant" in str(constant) and plots.fitted_distributions(constant)
    lossy = fit([*draws(TRUE["Exponential"], 500), np.inf])
    assert "1 of 501 times are infinite" in lossy.verdict and np.isinf(lossy.best.values[-1]) and len(lossy.times) == 500


@pytest.mark.parametrize(
    "times, words",
    [
        (np.arange(1.0, 10.0), "at least 10 finite times, but got 9"),
        ([1.0] * 9 + [np.inf] * 5, "but got 9"),
        ([1.0] * 20 + [0.0], "positive times, but got 0.0"),
        ([1.0] * 20 + [-1.0], "positive times, but got -1.0"),
        ([1.0] * 20 + [np.nan], "positive times, but got nan"),
        (np.ones((3, 4, 5)), "shape (3, 4, 5)"),
        ([], "but got 0"),
    ],
)
def test_bad_times_are_refused(times, words):
    with pytest.raises(Invalid) as caught:
        fit(times)
    assert words in str(caught.value)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_units_do_not_matter(scale):
    times = draws(TRUE["LogNormal"], 500)
    plain, scaled = fit(times), fit(times * scale)
    assert [one.name for one in plain.ranking] == [one.name for one in scaled.ranking]
    assert [one.ks for one in scaled.ranking] == pytest.approx([one.ks for one in plain.ranking], rel=1e-3)


@pytest.mark.parametrize("kind", ["ties", "two values", "nearly normal", "ten times", "huge spread"])
def test_odd_samples_neither_fail_nor_warn(kind):
    rng = np.random.default_rng(4)
    samples = {
        "ties": rng.integers(1, 4, 200).astype(float),
        "two values": np.array([1.0] * 10 + [3.0] * 5),
        "nearly normal": rng.normal(10, 0.01, 300),
        "ten times": rng.exponential(size=10),
        "huge spread": rng.lognormal(0, 15, 300),
    }
    found = fit(samples[kind])
    assert all(np.isfinite(one.aic) and 0 < one.ks <= 1 for one in found.ranking) and plots.fitted_distributions(found)
    assert np.isfinite(found.best.order_statistics(3)[0])


def test_many_times_are_thinned_by_the_seed():
    times = draws(TRUE["LogNormal"], 100_000)
    found = fit(times)
    assert len(found.times) == 20_000 and found.ranking[0].name == "LogNormal"
    assert repr(fit(times).best) == repr(found.best) != repr(fit(times, rng=1).best)


def test_results_print_plot_and_become_json():
    found = fit(draws(TRUE["Gamma"], 1000))
    lines = str(found).splitlines()
    assert lines[0] == "fit of 1000 times" and len(lines) == 10 and max(map(len, lines)) <= 82
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert parse_latency(data["best"]) == found.best and len(data["ranking"]) == 7
    assert parse_latency(data["ranking"][-1]["model"]) == found.ranking[-1].model
    (axes,) = plots.fitted_distributions(found).axes
    assert len(axes.lines) == 7 or len(axes.lines) == 6  # the times, the best five, and the shifted exponential
    assert axes.get_xlabel() == "time of a unit of work (s)"


def test_what_is_found_can_be_simulated():
    for times in (draws(TRUE["Gamma"], 500), np.random.default_rng(1).integers(1, 3, (50, 4)).astype(float)):
        assert simulate(codes.cyclic_repetition(4, s=1), fit(times).best, rounds=100, rng=0).exact.mean == 1


def test_fit_is_no_latency_model():
    assert "fit" not in latency.MODELS and {"fit", "Fit"} <= set(latency.__all__)


@pytest.mark.skipif(not REAL.exists(), reason="the ByteDance traces are not beside the repository")
@pytest.mark.parametrize("job, distance", [("SE", 0.246), ("AR", 0.424)])
def test_the_shifted_exponential_does_not_fit_real_traces(job, distance):
    found = fit(trace.read(REAL / "compute_seconds.npz", key=job))
    shifted = next(one for one in found.ranking if one.name == "ShiftedExponential")
    assert shifted.ks == pytest.approx(distance, abs=0.001) and not shifted.passes
    assert isinstance(found.best, Empirical) and found.best.values.ndim == 2 and "No family fits" in found.verdict
