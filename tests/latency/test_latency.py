"""Latency models: distributions that agree with themselves, exact order statistics, and models that simulate."""

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import beta, gamma

from unstraggle import Code, Invalid, Messages, Span, Tasks, codes, parse_latency, simulate
from unstraggle.latency import (
    MODELS,
    Bernoulli,
    BurrXII,
    Empirical,
    Exponential,
    FixedCost,
    Gamma,
    Heterogeneous,
    LogNormal,
    Network,
    Pareto,
    Persistent,
    Replay,
    ShiftedExponential,
    TwoSpeed,
    Weibull,
)

CONTINUOUS = (
    ShiftedExponential(rate=10.0, shift=0.01),
    Exponential(rate=2.0),
    Pareto(shape=2.5, scale=0.5),
    Weibull(shape=0.7, scale=2.0, shift=0.5),
    Weibull(shape=3.0),
    LogNormal(mu=-1.0, sigma=0.6, shift=0.2),
    BurrXII(c=3.0, d=1.5, scale=2.0, shift=0.1),
    Gamma(shape=0.6, scale=2.0, shift=1.0),
    Gamma(shape=4.0),
)
ROUNDS = ((1.0, 2.0, 4.0), (3.0, 1.0, 2.0), (1.5, 2.5, 0.5), (2.0, 8.0, 1.0))
OTHERS = (
    TwoSpeed(fast=1.0, slow=5.0, p=0.2),
    Bernoulli(p=0.1, time=2.0),
    Empirical([1.0, 2.0, 3.0, 7.0]),
    Empirical(ROUNDS),
    Replay(ROUNDS),
    Heterogeneous([Exponential(rate=1.0), LogNormal(mu=0.0, sigma=1.0), TwoSpeed(fast=1.0, slow=2.0, p=0.5)]),
    Persistent(fast=Exponential(rate=4.0), slow=Exponential(rate=0.5), p=0.2, stay=5.0),
    Network(Exponential(rate=1.0), dim=1000, bandwidth=(1e4, 1e5, 1e6), round_trip=0.1),
    FixedCost(Exponential(rate=1.0), seconds=0.5),
)
SPEEDS = tuple(model for model in CONTINUOUS + OTHERS if not isinstance(model, Network | FixedCost))
names = pytest.mark.parametrize


@names("model", CONTINUOUS, ids=repr)
def test_quantile_survival_and_cdf_agree(model):
    lower = np.concatenate([np.geomspace(1e-5, 0.5, 40), np.linspace(0.5, 0.999, 40)])
    times = model.quantile(lower, 1 - lower)
    assert (np.diff(times) >= 0).all()
    assert model.cdf(times) == pytest.approx(lower, rel=1e-6)
    assert model.survival(1.0, times) == pytest.approx(1 - lower, rel=1e-9)
    assert model.survival(2.0, 2 * times) == pytest.approx(1 - lower, rel=1e-9)
    assert model.survival(1.0, 0.0) == 1 and model.cdf(0.0) == 0 and model.survival(1.0, np.inf) == 0


@names("model", CONTINUOUS, ids=repr)
def test_draws_follow_the_distribution(model):
    draws = model.draw((20_000, 1), np.random.default_rng(1)).ravel()
    assert stats.kstest(draws, model.cdf).pvalue > 0.001
    speeds = model.speeds(4, 5000, np.random.default_rng(2))
    assert speeds.shape == (5000, 4) and stats.kstest(speeds.ravel(), model.cdf).pvalue > 0.001


@names("model", SPEEDS, ids=repr)
def test_order_statistics_agree_with_simulation(model):
    n, rounds = 3, 200_000
    speeds = np.sort(model.speeds(n, rounds, np.random.default_rng(5)), axis=1)
    harmonic = model.harmonic_order_statistics(n)
    means = model.order_statistics(n)
    own = model.order_statistics_error(n)  # of models that simulate their order statistics
    for q in range(n):
        if np.isfinite(means[q]) and np.isfinite(speeds[:, q]).all():
            error = np.hypot(speeds[:, q].std() / np.sqrt(rounds), own[q])
            error *= np.sqrt(10) if isinstance(model, Persistent) else 1  # rounds hang together for about 2 x stay of them
            assert abs(speeds[:, q].mean() - means[q]) <= 4 * error + 1e-12
        if harmonic[q] > 0 and not isinstance(model, Persistent | Heterogeneous):
            inverse = 1 / speeds[:, q]
            assert abs(inverse.mean() - 1 / harmonic[q]) <= 4 * inverse.std() / np.sqrt(rounds) + 1e-12


@names(
    "model, mean",
    [
        (ShiftedExponential(rate=10.0, shift=0.01), 0.11),
        (Pareto(shape=2.5, scale=0.5), 0.5 * 2.5 / 1.5),
        (Weibull(shape=0.7, scale=2.0, shift=0.5), 0.5 + 2 * gamma(1 + 1 / 0.7)),
        (Weibull(shape=0.05), gamma(21)),
        (LogNormal(mu=-1.0, sigma=0.6, shift=0.2), 0.2 + np.exp(-1 + 0.18)),
        (LogNormal(mu=0.0, sigma=3.0), np.exp(4.5)),
        (BurrXII(c=3.0, d=1.5, scale=2.0, shift=0.1), 0.1 + 2 * 1.5 * beta(1.5 - 1 / 3, 1 + 1 / 3)),
        (BurrXII(c=10.0, d=0.3), 0.3 * beta(0.2, 1.1)),
        (BurrXII(c=1.02, d=1.0), beta(1 - 1 / 1.02, 1 + 1 / 1.02)),
        (Gamma(shape=0.6, scale=2.0, shift=1.0), 2.2),
        (TwoSpeed(fast=1.0, slow=5.0, p=0.2), 1.8),
    ],
    ids=repr,
)
def test_means_have_their_closed_form(model, mean):
    assert model.mean == pytest.approx(mean, rel=1e-8)


def test_order_statistics_of_exponentials_and_uniform_powers():
    harmonic = np.cumsum(1 / np.arange(40, 0, -1.0))
    assert ShiftedExponential(rate=10.0, shift=0.01).order_statistics(40) == pytest.approx(0.01 + harmonic / 10, rel=1e-12)
    weibull = Weibull(shape=1.0, scale=0.1, shift=0.01)  # the same distribution, by quadrature
    assert weibull.order_statistics(40) == pytest.approx(0.01 + harmonic / 10, rel=1e-10)
    burr = BurrXII(c=1.0, d=3.0, shift=1.0)  # a Pareto distribution, by quadrature
    assert burr.order_statistics(20) == pytest.approx(Pareto(shape=3.0).order_statistics(20), rel=1e-9)
    assert burr.harmonic_order_statistics(20) == pytest.approx(Pareto(shape=3.0).harmonic_order_statistics(20), rel=1e-9)


def test_harmonic_order_statistics_match_equation_8_in_sixty_digits():
    """1/t'_n = -mu (N+1-n) C(N,n-1) sum_i (-1)^i C(n-1,i) e^z Ei(-z), z = mu t0 (N-n+i+1): alternating, so in 60 digits."""
    workers, rate, shift = 50, mpmath.mpf("1e-3"), 50
    with mpmath.workdps(60):
        table = {j: mpmath.e ** (rate * shift * j) * mpmath.ei(-rate * shift * j) for j in range(1, workers + 1)}
        exact = []
        for n in range(1, workers + 1):
            terms = ((-1) ** i * mpmath.binomial(n - 1, i) * table[workers - n + i + 1] for i in range(n))
            exact.append(float(-1 / (rate * (workers + 1 - n) * mpmath.binomial(workers, n - 1) * mpmath.fsum(terms))))
    assert ShiftedExponential(rate=1e-3, shift=50).harmonic_order_statistics(50) == pytest.approx(exact, rel=1e-10)


def test_a_thousand_workers():
    model = ShiftedExponential(rate=1e-3, shift=50)
    means, harmonic = model.order_statistics(1000), model.harmonic_order_statistics(1000)
    assert (np.diff(means) > 0).all() and (np.diff(harmonic) > 0).all()
    assert (harmonic <= means).all() and harmonic[0] > 50 and means[-1] == pytest.approx(50 + 7485.47, rel=1e-5)


@names("model", CONTINUOUS, ids=repr)
def test_harmonic_means_lie_below_the_means_and_above_the_shift(model):
    means, harmonic = model.order_statistics(8), model.harmonic_order_statistics(8)
    assert (harmonic <= means * (1 + 1e-12)).all() and (np.diff(harmonic) >= 0).all()
    assert (harmonic >= getattr(model, "shift", 0.0) * (1 - 1e-12)).all()


def test_infinite_means_are_told():
    assert np.isinf(Pareto(shape=1.0).mean) and np.isinf(Pareto(shape=0.5).mean) and np.isinf(BurrXII(c=1.0, d=1.0).mean)
    assert np.isfinite(Pareto(shape=1.0).order_statistics(4)).tolist() == [True, True, True, False]
    assert np.isfinite(BurrXII(c=0.5, d=1.0).order_statistics(4)).tolist() == [True, True, False, False]
    assert Pareto(shape=1.001).mean == pytest.approx(1001.0, rel=1e-9)
    assert np.isinf(Bernoulli(p=0.1).order_statistics(3)).all() and Bernoulli(p=0.0).mean == 1.0


@names("shape, infinite", [(1.0, 1), (0.5, 2), (1 / 3, 3), (0.25, 4), (0.2, 5)])
@names("family", [Weibull, Gamma])
def test_infinite_means_of_reciprocals_are_told(family, shape, infinite):
    """Where P(T < t) goes like t^shape, E[1/T_(q)] is finite for q > 1/shape only."""
    assert (family(shape=shape).harmonic_order_statistics(8) > 0).tolist() == [False] * infinite + [True] * (8 - infinite)


def test_parameters_near_the_ends_neither_overflow_nor_warn():
    times = np.array([0.0, 1e-300, 1e-9, 1.0, 1e9, 1e300, np.inf])
    for model in (BurrXII(c=1e4, d=1e-4), BurrXII(c=0.1, d=1e4), Weibull(shape=20.0), LogNormal(mu=0, sigma=0.01), Pareto(9.0)):
        survival = model.survival(1.0, times)
        assert (np.diff(survival) <= 0).all() and survival[0] == 1 and survival[-1] == 0
    assert Pareto(shape=2.0).survival(1.0, -1.0) == 1


def test_two_speeds():
    model = TwoSpeed(fast=1.0, slow=5.0, p=0.2)
    late = stats.binom.cdf([0, 1, 2], 3, 0.8)  # fewer than q workers are fast
    assert model.order_statistics(3) == pytest.approx(1 + 4 * late) and model.order_statistics_error(3).tolist() == [0, 0, 0]
    assert model.harmonic_order_statistics(3) == pytest.approx(1 / (1 - late + late / 5))
    assert model.survival(2.0, np.array([1.9, 2.0, 9.9, 10.0])).tolist() == [1.0, 0.2, 0.2, 0.0]
    assert Bernoulli(p=1.0).harmonic_order_statistics(2).tolist() == [np.inf, np.inf]


def test_measured_times_are_exact():
    values = np.array([1.0, 2.0, 3.0, 7.0])
    triples = np.sort(np.array(np.meshgrid(values, values, values)).reshape(3, -1), axis=0)
    model = Empirical(values)
    assert model.order_statistics(3) == pytest.approx(triples.mean(axis=1))
    assert model.harmonic_order_statistics(3) == pytest.approx(1 / (1 / triples).mean(axis=1))
    assert model.survival(2.0, [1.0, 2.0, 5.9, 14.0]).tolist() == [1.0, 0.75, 0.5, 0.0]
    ordered = np.sort(np.array(ROUNDS), axis=1)
    for kind in (Empirical, Replay):
        assert kind(ROUNDS).order_statistics(3) == pytest.approx(ordered.mean(axis=0))
        assert kind(ROUNDS).harmonic_order_statistics(3) == pytest.approx(1 / (1 / ordered).mean(axis=0))
        assert kind(ROUNDS).survival(1.0, 2.0).tolist() == [0.25, 0.5, 0.25]
        assert kind(ROUNDS).survival(1.0, [[2.0], [1.0]]).tolist() == [[0.25, 0.5, 0.25], [0.75, 0.75, 0.5]]


def test_times_that_never_end():
    model = Empirical([1.0, 2.0, np.inf])
    assert np.isinf(model.order_statistics(3)).all() and np.isfinite(model.harmonic_order_statistics(3)).all()
    many = Empirical([*np.linspace(1, 2, 999), np.inf]).order_statistics(100)
    assert np.isfinite(many[:50]).all() and np.isinf(many[-1])  # the first of a hundred always ends, the last does not
    assert Empirical([np.inf]).harmonic_order_statistics(2).tolist() == [np.inf, np.inf]


def test_replay_goes_through_the_rounds_in_order():
    code = codes.uncoded(3)
    times = simulate(code, Replay(ROUNDS), rounds=6, rng=0).time.values
    assert times.tolist() == [4.0, 3.0, 2.5, 8.0, 4.0, 3.0]
    drawn = Empirical(ROUNDS).speeds(3, 1000, np.random.default_rng(1))
    assert {tuple(row) for row in drawn} == set(ROUNDS)  # whole rounds


def test_persistent_workers_are_slow_for_as_long_as_they_should():
    model = Persistent(fast=Exponential(rate=4.0), slow=Exponential(rate=0.5), p=0.2, stay=8.0)
    slow = model.states(50, 20_000, np.random.default_rng(3)).T
    assert slow.mean() == pytest.approx(0.2, abs=0.005)
    spells = (np.diff(slow, axis=1) == -1).sum()  # ends of slow spells
    assert slow.sum() / spells == pytest.approx(8.0, rel=0.03)
    forgetful = Persistent(fast=Exponential(rate=1.0), slow=Exponential(rate=1.0), p=0.25, stay=4 / 3)
    slow = forgetful.states(20, 20_000, np.random.default_rng(4))
    assert slow[1:][slow[:-1] == 1].mean() == pytest.approx(0.25, abs=0.01)
    assert model.survival(1.0, 1.0) == pytest.approx(0.8 * np.exp(-4) + 0.2 * np.exp(-0.5))


def test_heterogeneous_workers_have_their_own_times():
    model = Heterogeneous([Exponential(rate=1.0), Exponential(rate=10.0), TwoSpeed(fast=3.0, slow=4.0, p=0.5)])
    speeds = model.speeds(3, 50_000, np.random.default_rng(6))
    assert speeds.mean(axis=0) == pytest.approx([1.0, 0.1, 3.5], rel=0.03)
    assert model.survival(1.0, 3.5) == pytest.approx([np.exp(-3.5), np.exp(-35), 0.5])
    assert abs(np.corrcoef(speeds[:, 0], speeds[:, 1])[0, 1]) < 0.02


class Fixed:
    """Arrivals that are given."""

    def __init__(self, times):
        self.times = np.asarray(times, dtype=float)

    def sample(self, code, rounds, rng):
        return self.times


def test_messages_queue_on_the_link_of_their_worker():
    """Two messages each; a message of 1000 float32 takes 4 s at 1000 bytes/s. Worker 1 has a link of twice that."""
    messages = Messages([0, 0, 1, 1], [1, 2, 1, 2], np.eye(4)[:, [0, 1, 2, 3]])
    code = Code("two each", 2, Tasks([0, 0, 1, 1], [0, 1, 2, 3]), messages, Span(messages.coef))
    ready = np.array([[1.0, 2.0, 1.0, 9.0], [1.0, np.inf, 3.0, 4.0]])
    network = Network(Fixed(ready), dim=1000, bandwidth=(1000.0, 2000.0), round_trip=0.5)
    expected = [[5.5, 9.5, 3.5, 11.5], [5.5, np.inf, 5.5, 7.5]]
    assert network.seconds(code).tolist() == [4.0, 4.0, 2.0, 2.0]
    assert network.sample(code, 2, np.random.default_rng(0)).tolist() == expected
    assert ready[0, 0] == 1.0  # what the base model handed out is left alone


@names("model", CONTINUOUS + OTHERS, ids=repr)
def test_models_print_as_the_expression_that_makes_them(model):
    again = parse_latency(repr(model))
    assert repr(again) == repr(model)
    if not isinstance(model, Empirical | Replay):
        assert again == model


def test_printed_numbers_can_be_parsed_whatever_their_type_and_all_models_are_here():
    model = ShiftedExponential(rate=np.float64(2.0), shift=np.float32(0.5), per="task")
    assert parse_latency(repr(model)) == model
    assert "1000 values" in repr(Empirical(np.ones(1000)))
    assert set(MODELS) - {"Exponential", "Bernoulli"} == {type(model).__name__ for model in CONTINUOUS + OTHERS}


@names("model", CONTINUOUS + OTHERS, ids=repr)
def test_every_model_runs_in_the_simulator(model):
    result = simulate(codes.cyclic_repetition(3, s=1), model, rounds=50, rng=1)
    again = simulate(codes.cyclic_repetition(3, s=1), model, rounds=50, rng=1)
    assert (result.time.values > 0).all() and np.array_equal(result.time.values, again.time.values)


@names(
    "make, words",
    [
        (lambda: Persistent(fast=3.0, slow=Exponential(1.0), p=0.1, stay=2.0), "combines latency models"),
        (lambda: Persistent(Exponential(1.0, per="task"), Exponential(1.0), p=0.1, stay=2.0), 'Use per="round"'),
        (lambda: Persistent(Exponential(1.0), Exponential(1.0), p=0.9, stay=2.0), "stay"),
        (lambda: Heterogeneous(3), "one per worker"),
        (lambda: Heterogeneous([1.0]), "combines latency models"),
        (lambda: Heterogeneous([Exponential(1.0)]).speeds(2, 1, np.random.default_rng(0)), "describes 1 workers"),
        (lambda: Empirical([1.0, 0.0]), "positive times"),
        (lambda: Empirical([1.0, np.nan]), "positive times"),
        (lambda: Empirical([]), "shape (0,)"),
        (lambda: Empirical(ROUNDS).order_statistics(4), "holds times of 3 workers"),
        (lambda: Replay([1.0, 2.0]), "(rounds, workers)"),
        (lambda: Network(Exponential(1.0), dim=0, bandwidth=1.0), "dim=0"),
        (lambda: Network(Exponential(1.0), dim=1, bandwidth=[1.0, -1.0]), "bandwidth > 0"),
        (lambda: Network(Exponential(1.0), 1, (1.0, 2.0)).seconds(codes.uncoded(3)), "for 2 workers"),
        (lambda: TwoSpeed(fast=2.0, slow=1.0, p=0.1), "slow >= fast"),
        (lambda: Bernoulli(p=1.5), "p=1.5"),
        (lambda: Gamma(shape=1.0).order_statistics(0), "n=0"),
    ],
)
def test_bad_models_are_refused(make, words):
    with pytest.raises(Invalid) as caught:
        make()
    assert words in str(caught.value)
