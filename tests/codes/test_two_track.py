"""Two-track decoding: the closed form, its optimum and the identity with the optimal structure."""

import numpy as np
import pytest

from unstraggle import Invalid, codes
from unstraggle.codes.approximate import table_code
from unstraggle.codes.two_track import second_moment_weights, shrinkage, two_track
from unstraggle.plan.error import delta

from ..plan.test_bits import grid


def instance(seed, n=7, k=5):
    """A code with random positive coefficients, its p, omega, pull, and the moments of the objective."""
    rng = np.random.default_rng(seed)
    p, omega, pull = rng.uniform(0.05, 0.95, n), rng.random(n), float(rng.uniform(0.2, 5))
    return table_code("random", n, rng.uniform(0.1, 1, (n, k)), "fixed"), p, omega, pull


def variance(code, p, omega, w):
    sums = code.messages.coef.toarray().sum(axis=1)
    return float(((1 - p) * (p + omega) * sums**2 * w**2).sum())


def objective(code, p, omega, pull, w):
    sums = code.messages.coef.toarray().sum(axis=1)
    return pull * float(((1 - p) * sums * w).sum() - code.k) ** 2 + variance(code, p, omega, w)


@pytest.mark.parametrize("seed", range(20))
def test_closed_form_solves_the_normal_equations(seed):
    code, p, omega, pull = instance(seed)
    mean = (1 - p) * code.messages.coef.toarray().sum(axis=1)
    spread = np.diag((1 - p) * (p + omega) * code.messages.coef.toarray().sum(axis=1) ** 2)
    solved = np.linalg.solve(pull * np.outer(mean, mean) + spread, pull * code.k * mean)
    weights = second_moment_weights(code, p, omega, pull=pull)
    assert np.allclose(weights, solved, rtol=1e-9)
    total = delta(p, omega)
    assert objective(code, p, omega, pull, weights) == pytest.approx(pull * code.k**2 / (1 + pull * total))
    assert mean @ weights == pytest.approx(code.k * shrinkage(p, omega, pull=pull)), "what remains of the mean"


def test_no_unbiased_decoder_has_less_variance():
    code, p, omega, pull = instance(3)
    weights = second_moment_weights(code, p, omega, pull=pull)
    value, spread = objective(code, p, omega, pull, weights), variance(code, p, omega, weights)
    mean, rng = (1 - p) * code.messages.coef.toarray().sum(axis=1), np.random.default_rng(0)
    for _ in range(100):
        other = rng.standard_normal(7)
        other *= code.k / (mean @ other)
        assert spread <= value <= variance(code, p, omega, other) * (1 + 1e-12)
        assert pull * (mean @ weights - code.k) ** 2 <= variance(code, p, omega, other)


@pytest.mark.parametrize("n, expected", [(10, 0.518), (50, 0.843), (100, 0.915)])
def test_second_track_of_the_optimal_structure_is_a_multiple_of_the_first(n, expected):
    p = grid(n)
    code = codes.optimally_structured(p)
    assert shrinkage(p) == pytest.approx(expected, abs=5e-4)
    assert np.allclose(second_moment_weights(code, p), shrinkage(p), rtol=1e-7)


@pytest.mark.parametrize("pull, gamma", [(1.0, 1.0), (0.3, 0.5), (4.0, 2.0)])
def test_identity_with_quantisers(pull, gamma):
    p, omega = grid(12), np.linspace(0.1, 3, 12)
    code = codes.optimally_structured(p, k=9, omega=omega, gamma=gamma)
    c = shrinkage(p, omega, gamma=gamma, pull=pull)
    assert np.allclose(second_moment_weights(code, p, omega, gamma=gamma, pull=pull), c, rtol=1e-7) and 0 < c < 1
    assert not np.allclose(second_moment_weights(code, p, pull=pull), c), "another omega gives a true second decoder"


@pytest.mark.parametrize("seed", range(10))
def test_vector_objective_is_minimal(seed):
    code, p, omega, pull = instance(seed)
    rows = code.messages.coef.toarray()

    def value(w):
        bias = ((1 - p) * w) @ rows - 1
        return pull * float(bias @ bias) + variance(code, p, omega, w)

    weights = second_moment_weights(code, p, omega, pull=pull, objective="vector")
    rng = np.random.default_rng(seed)
    assert all(value(weights) <= value(weights + 0.01 * rng.standard_normal(7)) for _ in range(100))
    assert value(weights) <= value(second_moment_weights(code, p, omega, pull=pull))


def test_two_tracks_decode_the_same_messages():
    p = grid(10)
    code = codes.stochastic(10, p)
    both = two_track(code, p)
    got = np.arange(10) % 3 > 0
    weights = both.decoder.weights(got)
    assert weights.shape == (2, 10) and np.array_equal(weights[0], code.decoder.weights(got)[0])
    assert np.array_equal(weights[1], second_moment_weights(code, p) * got)
    assert both.messages is code.messages and both.name.startswith("two_track(stochastic(10")


def test_two_track_adam_steps_are_longer_by_one_over_the_shrinkage():
    """With the optimal structure and eps = 0 the second track only rescales Adam's step."""
    p, rng = grid(10), np.random.default_rng(9)
    both, c = two_track(codes.optimally_structured(p), p), shrinkage(p)
    partials = rng.standard_normal((10, 6))
    messages = both.messages.coef @ partials

    def steps(track):
        rng, m, v = np.random.default_rng(1), np.zeros(6), np.zeros(6)
        for t in range(1, 40):
            weights = both.decoder.weights(rng.random(10) >= p)
            m, v = 0.9 * m + 0.1 * weights[0] @ messages, 0.999 * v + 0.001 * (weights[track] @ messages) ** 2
            with np.errstate(invalid="ignore"):
                yield (m / (1 - 0.9**t)) / np.sqrt(v / (1 - 0.999**t))

    for one, two in zip(steps(0), steps(1), strict=True):
        assert two == pytest.approx(one / c, rel=1e-6, nan_ok=True)
    assert np.isfinite(one).all() and c < 0.6


def test_rows_that_cancel_and_workers_that_never_err():
    code = table_code("cancel", 3, np.array([[1.0, -1.0], [1.0, 1.0], [0.5, 1.5]]), "fixed")
    assert second_moment_weights(code, 0.5)[0] == 0
    assert np.allclose(second_moment_weights(code, 0.5)[1:], 2 / (0.5 * 2 * (1 + 2)))
    assert second_moment_weights(code, [0.3, 0.0, 0.5]).tolist() == [0.0, 1.0, 0.0]
    assert shrinkage([0.0, 0.5]) == 1.0
    gone = second_moment_weights(codes.ignore_stragglers(3), [0.5, 1.0, 0.5], objective="vector")
    assert gone[1] == 0 and np.isfinite(gone).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: two_track(codes.erasurehead(4, s=1), 0.5), "fixed weights"),
        (lambda: two_track(codes.optimally_structured([0.5] * 4), 0.5, pull=0), "pull > 0"),
        (lambda: two_track(codes.optimally_structured([0.5] * 4), 0.5, objective="matrix"), "vector"),
        (lambda: two_track(codes.optimally_structured([0.5] * 4), 1.5), "0 <= p <= 1"),
        (lambda: shrinkage([0.5], pull=float("nan")), "pull > 0"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(Invalid, match=message):
        make()
