"""Convergence bounds of [C], Theorems 2 and 3: they hold where they must, and count steps as they say."""

import numpy as np
import pytest

from unstraggle import Invalid, codes, plan
from unstraggle.plan.bits import variance
from unstraggle.plan.error import mean_squared_error

P = np.array([0.1, 0.3, 0.5, 0.7, 0.2, 0.6])
K = 6


def decoded(code, grads, rng, rounds):
    """(rounds, dim) estimates of the sum of gradients, stragglers drawn."""
    messages = code.messages.coef.toarray() @ grads
    heard = rng.random((rounds, len(P))) >= P
    weights = np.stack([code.decoder.weights(got[code.messages.worker])[0] for got in heard])
    return (weights * heard[:, code.messages.worker]) @ messages


def test_the_second_moment_is_that_of_equation_50():
    """|g_j| <= C: the bound is met where all partial gradients are alike and the quantiser is as noisy as its bound."""
    found = plan.convergence(P, K, norm=2.0)
    code = codes.optimally_structured(P)
    error = mean_squared_error(code, P, "identical")
    assert found.second_moment == pytest.approx(4.0 * (error.mean_squared_error + K**2), rel=1e-9)
    assert found.second_moment == pytest.approx(4.0 * K**2 * (1 + 1 / plan.error.delta(P)))
    noise = variance("qsgd", 1000, [4] * K)
    assert plan.convergence(P, K, bits=[4] * K, dim=1000, omega="qsgd") == plan.convergence(P, K, omega=noise)


@pytest.mark.parametrize("steps", [30, 300])
def test_theorem_2_holds_on_a_strongly_convex_problem(steps):
    """Distances to a point in a ball: f_j = |theta - c_j|^2 / 2, so f is K-strongly convex and |g_j| <= 2 r inside."""
    rng, dim, radius, runs = np.random.default_rng(0), 3, 1.0, 40
    centres = rng.standard_normal((K, dim))
    centres *= radius / np.linalg.norm(centres, axis=1).max()
    code = codes.optimally_structured(P)
    found = plan.convergence(P, K, convexity=K, norm=2 * radius)
    square = []
    for run in range(runs):
        theta = np.zeros(dim)
        draw = np.random.default_rng(run + 1)
        for t in range(1, steps + 1):
            theta = theta - found.step_size(t) * decoded(code, theta - centres, draw, 1)[0]
            theta *= min(1.0, radius / max(np.linalg.norm(theta), 1e-12))  # the theorem is for a bounded set
        square.append(np.sum((theta - centres.mean(axis=0)) ** 2))
    assert np.mean(square) < found.bound(steps)


@pytest.mark.parametrize("loss", ["smooth", "smooth, decaying"])
def test_theorem_3_holds_on_a_smooth_problem_that_is_not_convex(loss):
    """f_j = sum over coordinates of 1 - cos(theta - c_j): 1-smooth each, |g_j| <= sqrt(dim)."""
    rng, dim, steps = np.random.default_rng(1), 4, 200
    centres = 0.3 * rng.standard_normal((K, dim))

    def value(theta):
        return float((1 - np.cos(theta - centres)).sum())

    start = np.full(dim, 1.5)
    found = plan.convergence(P, K, loss=loss, smoothness=K, gap=value(start), norm=np.sqrt(dim), scale=0.05)
    code, seen = codes.optimally_structured(P), []
    for run in range(20):
        theta, draw, squares = start, np.random.default_rng(run), []
        for t in range(1, steps + 1):
            grads = np.sin(theta - centres)
            squares.append(float((grads.sum(axis=0) ** 2).sum()))
            theta = theta - found.step_size(t, steps) * decoded(code, grads, draw, 1)[0]
        seen.append(squares)
    mean = np.mean(seen, axis=0)
    assert (mean.min() if "decaying" in loss else mean.mean()) < found.bound(steps)


@pytest.mark.parametrize("loss", ["strongly convex", "smooth", "smooth, decaying"])
def test_steps_are_the_first_that_reach_the_target(loss):
    for target in (1.0, 0.37, 20.0):
        found = plan.convergence(P, K, loss=loss, norm=0.1, smoothness=0.5, gap=2.0, scale=0.7, target=target)
        assert found.steps == 1 or found.bound(found.steps - 1) > target
        assert found.bound(found.steps) <= target * (1 + 1e-9)


def test_more_bits_and_fewer_stragglers_take_fewer_steps():
    def steps(p=P, **how):
        return plan.convergence(p, K, target=0.1, **how).steps

    few, many = (steps(bits=[b] * K, dim=10_000) for b in (4, 8))
    assert steps() < many < few and steps(p=P / 2) < steps() < steps(sampling=10.0)
    assert plan.convergence(np.ones(K), K, target=0.1).steps == np.inf


def test_the_deadline_minimises_what_theorem_2_says():
    """Time to a target: tau times the steps that convergence counts with the deadline's own p."""
    from unstraggle.latency import ShiftedExponential

    found = plan.deadline(ShiftedExponential(rate=1, shift=1), n=6)
    steps = plan.convergence(found.params["p"], 6, target=1e-3).steps
    assert found.params["tau"] * steps == pytest.approx(found.cost * 4 * 36 / 1e-3, rel=1e-3)


def test_batches_add_their_variance_where_quantisers_are_unbiased():
    """Equation 35: the error of a batch's estimate is that of all data's, and the variance of the batch as it is decoded."""
    rng = np.random.default_rng(5)
    whole, noise = rng.standard_normal((K, 2)), rng.standard_normal((20_000, K, 2))
    code = codes.optimally_structured(P)
    coef = code.messages.coef.toarray()
    heard = (rng.random((len(noise), len(P))) >= P)[:, code.messages.worker]
    batches = np.einsum("rm,mk,rkd->rd", heard.astype(float), coef, whole + noise)
    alone = np.einsum("rm,mk,kd->rd", heard.astype(float), coef, whole)
    error = np.mean(np.sum((batches - whole.sum(axis=0)) ** 2, axis=1))
    first, second = (np.mean(np.sum(x**2, axis=1)) for x in (alone - whole.sum(axis=0), batches - alone))
    assert error == pytest.approx(first + second, rel=0.03)


def test_what_is_wrong_is_refused():
    for wrong, said in (
        ({"loss": "convex"}, "strongly convex"),
        ({"norm": 0}, "norm > 0"),
        ({"target": -1}, "target > 0"),
        ({"bits": [4] * K}, "needs dim"),
    ):
        with pytest.raises(Invalid, match=said):
            plan.convergence(P, K, **wrong)
