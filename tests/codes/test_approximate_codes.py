"""Approximate codes: structure, bias and mean squared error ([C] section 3)."""

from dataclasses import replace
from itertools import product
from math import gcd

import numpy as np
import pytest
from scipy.optimize import minimize

from unstraggle import Deadline, First, Fixed, Invalid, Messages, Recovered, codes, simulate
from unstraggle.codes.approximate import gains, row_sums, table_code
from unstraggle.codes.optimally_structured import overlap
from unstraggle.latency import ShiftedExponential
from unstraggle.plan.bits import bits, variance
from unstraggle.plan.error import delta, least_bound, lemma_bound, mean_squared_error

from ..plan.test_bits import DIM, grid

P6 = np.array([0.1, 0.35, 0.5, 0.2, 0.8, 0.6])

UNBIASED = {
    "joint": codes.optimally_structured(P6),
    "joint quantised": codes.optimally_structured(P6, omega=[0.1, 2.0, 0.0, 0.5, 0.3, 1.0], gamma=0.7),
    "joint few": codes.optimally_structured(P6, k=4),
    "joint many": codes.optimally_structured(P6, k=11, construction="split"),
    "stochastic": codes.stochastic(6, P6),
    "stochastic random": codes.stochastic(6, P6, copies=[1, 2, 3, 1, 6, 2], placement="random", seed=3),
    "stochastic balanced": codes.stochastic(6, P6, copies=[1, 2, 3, 1, 6, 2], placement="balanced"),
    "rescaled": codes.ignore_stragglers(6, P6),
    "expander": codes.expander(6, degree=3, p=P6),
}

BIASED = {
    "ignore": codes.ignore_stragglers(6),
    "bernoulli": codes.bernoulli(6, load=2, seed=1),
    "erasure head": codes.erasurehead(6, s=1),
    "erasure head wide": codes.erasurehead(6, s=2),
    "cycle": codes.optimal_decoding(6, degree=2, seed=None),
    "graph": codes.optimal_decoding(6, degree=3),
    "expander": codes.expander(6, degree=2),
    "bernoulli one step": codes.bernoulli(6, load=2, seed=1, decode="one_step"),
    "bernoulli optimal": codes.bernoulli(6, load=2, seed=1, decode="least_squares"),
    "expander one step": codes.expander(6, degree=3, decode="one_step"),
    "erasure head sum": codes.erasurehead(6, s=1, decode="sum"),
}


def patterns(p):
    """All sets of responders and their probabilities."""
    heard = np.array(list(product([False, True], repeat=len(p))))
    return heard, np.where(heard, 1 - p, p).prod(axis=1)


def structure(code, p):
    """(n, k) W = (1 - p_i) a_i B_ij."""
    table = np.zeros((code.n, code.k))
    table[code.messages.worker] = code.decoder.fixed[0][:, None] * code.messages.coef.toarray()
    return (1 - p)[:, None] * table


def enumerated(code, p, gradients, noise=0.0):
    """Mean and mean squared error by going through all straggler sets and decoding each."""
    heard, chance = patterns(p)
    messages = code.messages.coef @ gradients
    weights = code.decoder.weights(heard[:, code.messages.worker])[:, 0]
    estimates, exact = weights @ messages, gradients.sum(axis=0)
    quantised = (weights**2 * (noise * (messages**2).sum(axis=1))).sum(axis=1)
    return chance @ estimates, float(chance @ (((estimates - exact) ** 2).sum(axis=1) + quantised))


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_over_all_straggler_sets(name):
    code = UNBIASED[name]
    gradients = np.random.default_rng(0).standard_normal((code.k, 5))
    mean, error = enumerated(code, P6, gradients)
    assert np.allclose(mean, gradients.sum(axis=0), atol=1e-12)
    answer = mean_squared_error(code, P6, gradients)
    assert answer.unbiased and answer.bias == pytest.approx(0, abs=1e-18)
    assert answer.mean_squared_error == pytest.approx(error, rel=1e-10)


@pytest.mark.parametrize("code", [*UNBIASED.values(), *BIASED.values()], ids=[*UNBIASED, *(f"biased {n}" for n in BIASED)])
def test_error_formula_equals_enumeration_with_quantisers(code):
    rng = np.random.default_rng(1)
    gradients, noise = rng.standard_normal((code.k, 4)), rng.random(len(code.messages))
    mean, error = enumerated(code, P6, gradients, noise)
    answer = mean_squared_error(code, P6, gradients, quantiser_variance=noise)
    assert answer.mean_squared_error == pytest.approx(error, rel=1e-10)
    assert answer.bias == pytest.approx(((mean - gradients.sum(axis=0)) ** 2).sum(), rel=1e-9, abs=1e-18)
    assert answer.mean_squared_error == pytest.approx(answer.bias + answer.straggling + answer.quantising)
    gram = mean_squared_error(code, P6, gram=gradients @ gradients.T, quantiser_variance=noise)
    assert gram.mean_squared_error == pytest.approx(error, rel=1e-10) and gram.ci95[0] == gram.ci95[1]


@pytest.mark.parametrize("name", BIASED)
def test_biased_codes_are_recognised(name):
    assert not mean_squared_error(BIASED[name], P6).unbiased


def test_drawn_sets_agree_with_enumeration():
    code, late = codes.optimal_decoding(12, degree=3), np.linspace(0.1, 0.9, 12)
    exact = mean_squared_error(code, late).mean_squared_error
    wide = codes.cluster(code, codes.ignore_stragglers(4))
    joined = mean_squared_error(wide, [*late, 0.5, 0.5, 0.5, 0.5])
    assert joined.mean_squared_error == pytest.approx(exact + 4 * 0.5, rel=1e-9), "independent parts add up"
    large, p = codes.optimal_decoding(20, degree=3), np.full(20, 0.5)
    first, second = (mean_squared_error(large, p, rounds=800, rng=seed) for seed in (1, 2))
    assert first.ci95[0] < second.ci95[1] and second.ci95[0] < first.ci95[1] and first.ci95[0] < first.ci95[1]


@pytest.mark.parametrize(
    "n, deadline, fastest, mean, total, inverse",
    [
        (10, 1.1, 2.0, 0.905863, 1.075308, 0.929966),
        (50, 1.1, 2.0, 0.905878, 5.377415, 0.185963),
        (100, 1.1, 2.0, 0.905878, 10.754885, 0.092981),
        (50, 1.5, 2.0, 0.630274, 36.092514, 0.027707),
        (50, 1.1, 5.0, 0.786509, 14.901611, 0.067107),
    ],
)
def test_grid_of_straggle_probabilities(n, deadline, fastest, mean, total, inverse):
    p = grid(n, deadline, fastest)
    assert p.mean() == pytest.approx(mean, abs=1e-6)
    assert delta(p) == pytest.approx(total, abs=1e-6)
    assert least_bound(p, k=n) / n**2 == pytest.approx(inverse, abs=1e-6)


@pytest.mark.parametrize(
    "make, identical, orthonormal, tolerance",
    [
        (lambda p: codes.optimally_structured(p), 0.18596, 5.387, 5e-4),
        (lambda p: codes.stochastic(50, p), 0.49265, 12.316, 5e-4),
        (lambda p: codes.ignore_stragglers(50), 0.82227, 0.90588, 5e-6),
        (lambda p: codes.ignore_stragglers(50, p), 0.49265, 24.63, 5e-3),
        (lambda p: codes.erasurehead(50, s=1), 0.68331, 0.82331, 5e-6),
    ],
    ids=["joint", "stochastic", "ignore", "rescaled", "erasurehead"],
)
def test_errors_of_the_table(make, identical, orthonormal, tolerance):
    p = grid(50)
    assert mean_squared_error(make(p), p, "identical").relative == pytest.approx(identical, abs=min(tolerance, 5e-6))
    assert mean_squared_error(make(p), p, "orthonormal").relative == pytest.approx(orthonormal, abs=tolerance)


def test_errors_of_random_codes_in_the_table():
    p = grid(50)
    drawn = [codes.bernoulli(50, load=2, seed=seed) for seed in range(60)]
    assert np.mean([mean_squared_error(code, p, "identical").relative for code in drawn]) == pytest.approx(0.670, abs=0.005)
    assert np.mean([mean_squared_error(code, p).relative for code in drawn]) == pytest.approx(0.847, abs=0.003)
    cycle = codes.optimal_decoding(50, degree=2, seed=None)
    assert mean_squared_error(cycle, p, "identical", rounds=8000).relative == pytest.approx(0.684, abs=0.007)
    assert mean_squared_error(cycle, p, rounds=8000).relative == pytest.approx(0.824, abs=0.005)


@pytest.mark.parametrize(
    "gamma, omega, budget, expected",
    [
        ("balanced", "paper", 350, (0.2146, 0.3787, 0.3789, 0.9571)),
        (1.0, "qsgd", 350, (0.2788, 6.442, 6.455, 15.59)),
        (1.0, "qsgd", 200, (0.5865, 56.5, 56.6, 136.0)),
    ],
)
def test_bounds_of_the_table(gamma, omega, budget, expected):
    p = grid(50)
    best, equal = (bits(p, budget=budget, dim=DIM, gamma=gamma, omega=omega, method=method) for method in ("dp", "equal"))
    few, same = variance(omega, DIM, best.bits), variance(omega, DIM, equal.bits)
    bounds = (
        lemma_bound(codes.optimally_structured(p, omega=few, gamma=best.gamma), p, few, best.gamma),
        least_bound(p, 50, same, best.gamma),
        lemma_bound(codes.optimally_structured(p), p, same, best.gamma),
        lemma_bound(codes.stochastic(50, p), p, same, best.gamma),
    )
    assert np.array(bounds) / 2500 == pytest.approx(expected, rel=3e-3)
    assert bounds[0] == pytest.approx(2500 / best.objective)


@pytest.mark.parametrize("seed", range(20))
def test_overlap_has_the_right_sums_and_few_coefficients(seed):
    rng = np.random.default_rng(seed)
    n, k = rng.integers(1, 30, size=2).tolist()
    p, omega = rng.random(n), rng.random(n)
    sums = row_sums(p, omega, 1.0, k)
    table = overlap(sums, k).toarray()
    assert np.allclose(table.sum(axis=1), sums, atol=1e-8) and np.allclose(table.sum(axis=0), 1, atol=1e-12)
    assert (table >= 0).all() and np.count_nonzero(table) <= n + k - 1
    code = codes.optimally_structured(p, k, omega=omega)
    assert np.allclose(structure(code, p), table, atol=1e-12)
    assert len(code.tasks) == np.count_nonzero(table) and code.shares.sum() == pytest.approx(1)
    assert lemma_bound(code, p, omega) == pytest.approx(least_bound(p, k, omega), rel=1e-6)


@pytest.mark.parametrize("n, k", [(6, 4), (4, 6), (10, 10), (9, 12), (7, 5), (49, 21), (1, 3), (3, 1)])
def test_equal_workers_need_n_plus_k_minus_gcd_coefficients(n, k):
    for construction in ("overlap", "split"):
        code = codes.optimally_structured([0.37] * n, k, construction=construction)
        assert code.messages.coef.nnz == n + k - gcd(n, k)


def test_splitting_saves_one_coefficient_a_group():
    """W = (0.5, 1.25, 1.5, 0.75): {0, 2} and {1, 3} carry two partitions each, and no prefix is whole."""
    sums = np.array([0.5, 1.25, 1.5, 0.75])
    p = 1 / (1 + sums / 3)
    assert np.allclose(row_sums(p, np.zeros(4), 1.0, 4), sums)
    dense, sparse = (codes.optimally_structured(p, construction=how) for how in ("overlap", "split"))
    assert dense.messages.coef.nnz == 4 + 4 - 1 and sparse.messages.coef.nnz == 4 + 4 - 2
    assert np.allclose(structure(sparse, p).sum(axis=1), sums) and np.allclose(structure(sparse, p).sum(axis=0), 1)
    assert mean_squared_error(sparse, p, "identical").relative == pytest.approx(1 / delta(p))


def test_splitting_many_workers_finds_pairs_and_triples_and_is_never_denser():
    """22 workers of 0.3 and 0.7 partitions: one coefficient each is enough, however they are ordered."""
    rng = np.random.default_rng(0)
    for shares, least in (([0.3, 0.7] * 11, 22), ([0.2, 0.8] * 30, 60), ([0.2, 0.3, 0.5] * 8, 26), (rng.random(25), 99)):
        weights = rng.permutation(shares)
        count = round(float(weights.sum()))
        weights = weights * (count / weights.sum())
        gain = weights / count  # (1 - p) / p, up to a factor
        p = 1 / (1 + gain)
        dense, sparse = (codes.optimally_structured(p, k=count, construction=how) for how in ("overlap", "split"))
        assert sparse.messages.coef.nnz <= min(least, dense.messages.coef.nnz)
        assert mean_squared_error(sparse, p).unbiased


def test_splitting_many_workers_keeps_the_sums():
    p = np.repeat([0.2, 0.5, 0.8, 0.5], 10)
    dense, sparse = (codes.optimally_structured(p, construction=how) for how in ("overlap", "split"))
    assert sparse.messages.coef.nnz <= dense.messages.coef.nnz
    assert np.allclose(structure(sparse, p).sum(axis=0), 1) and lemma_bound(sparse, p) == pytest.approx(lemma_bound(dense, p))


@pytest.mark.parametrize("seed", range(5))
def test_row_sums_solve_the_convex_problem(seed):
    """Theorem 1 by its optimality conditions and by a general solver over all of W."""
    rng = np.random.default_rng(seed)
    n, k = 4, 3
    p, omega = rng.uniform(0.1, 0.9, n), rng.random(n)
    price = 1 / gains(p, omega)
    best = row_sums(p, omega, 1.0, k)
    assert np.allclose(2 * price * best, 2 * k / delta(p, omega)), "one multiplier for every column"

    def objective(w):
        rows = w.reshape(n, k).sum(axis=1)
        return (price * rows**2).sum(), np.repeat(2 * price * rows, k)

    columns = {"type": "eq", "fun": lambda w: w.reshape(n, k).sum(axis=0) - 1, "jac": lambda w: np.tile(np.eye(k), (1, n))}
    start, options = np.full(n * k, 1 / n), {"ftol": 1e-14, "maxiter": 500}
    answer = minimize(
        objective, start, jac=True, method="SLSQP", bounds=[(0, None)] * (n * k), constraints=columns, options=options
    )
    assert answer.fun == pytest.approx(least_bound(p, k, omega), rel=1e-6)
    assert answer.x.reshape(n, k).sum(axis=1) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_row_sums_agree_with_a_convex_solver(seed):
    """Theorem 1 against cvxpy, over all of W, on random sizes."""
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(100 + seed)
    n, k = rng.integers(2, 9, size=2).tolist()
    p, omega, gamma = rng.uniform(0.05, 0.95, n), rng.exponential(1, n), float(rng.uniform(0.1, 3))
    price = 1 / gains(p, omega, gamma)
    w = cvxpy.Variable((n, k))
    error = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(price), cvxpy.sum(w, axis=1)))
    problem = cvxpy.Problem(cvxpy.Minimize(error), [cvxpy.sum(w, axis=0) == 1])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    assert problem.value == pytest.approx(least_bound(p, k, omega, gamma), rel=1e-6)
    assert w.value.sum(axis=1) == pytest.approx(row_sums(p, omega, gamma, k), rel=1e-6, abs=1e-6)
    code = codes.optimally_structured(p, k, omega=omega, gamma=gamma)
    assert structure(code, p).sum(axis=1) == pytest.approx(w.value.sum(axis=1), rel=1e-6, abs=1e-6)


def test_weights_can_be_moved_between_encoder_and_decoder():
    code = codes.optimally_structured(P6)
    scale = np.random.default_rng(2).uniform(-3, 3, 6)
    table = code.messages
    moved = Messages(table.worker, table.after, table.coef.toarray() / scale[:, None])
    other = replace(code, messages=moved, decoder=Fixed(moved.coef, fixed=scale))
    gradients = np.random.default_rng(3).standard_normal((6, 4))
    noise = np.full(6, 0.3)
    same = [mean_squared_error(c, P6, gradients, quantiser_variance=noise).mean_squared_error for c in (code, other)]
    assert same[0] == pytest.approx(same[1], rel=1e-12)
    heard, _ = patterns(P6)
    estimates = [c.decoder.weights(heard)[:, 0] @ (c.messages.coef @ gradients) for c in (code, other)]
    assert np.allclose(*estimates)


@pytest.mark.parametrize("seed", range(10))
def test_bound_holds_for_every_short_gradient_and_is_met_by_identical_ones(seed):
    rng = np.random.default_rng(seed)
    p, omega = rng.uniform(0.05, 0.95, 6), rng.random(6)
    code = codes.optimally_structured(p, omega=omega)
    bound = least_bound(p, 6, omega)
    for _ in range(20):
        gradients = rng.standard_normal((6, 3))
        gradients /= np.maximum(1, np.linalg.norm(gradients, axis=1, keepdims=True))
        assert mean_squared_error(code, p, gradients, quantiser_variance=omega).mean_squared_error <= bound * (1 + 1e-9)
    assert mean_squared_error(code, p, "identical", quantiser_variance=omega).mean_squared_error == pytest.approx(bound)


def test_negative_weights_break_the_bound_on_row_sums():
    """Scheme I: all workers share partition 0, the rest is private; row sums are optimal but W[i, 0] may be negative."""
    p = np.array([0.1, 0.5, 0.6, 0.7])
    n = k = 4
    sums = row_sums(p, np.zeros(n), 1.0, k)
    private = np.array([[1], [2], [3]])
    table = np.zeros((n, k))
    for worker, part in enumerate(private, start=1):
        table[worker, part] = 1
    table[:, 0] = sums - table.sum(axis=1)
    assert np.allclose(table.sum(axis=0), 1) and (table < 0).any()
    code = table_code("scheme I", n, table / (1 - p)[:, None], "fixed")
    signs = np.array([[-1.0], [1.0], [1.0], [1.0]])
    error = mean_squared_error(code, p, signs)
    assert error.unbiased and error.mean_squared_error > 1.2 * least_bound(p, k)
    assert error.mean_squared_error <= lemma_bound(code, p) * (1 + 1e-12), "with absolute values it is a bound again"


def chain(sums, k):
    """Scheme II (Song 2025): a worker takes what is left of a partition, whole ones, and the rest of its sum on the next."""
    n, table, at = len(sums), np.zeros((len(sums), k)), 0
    for i in range(n):
        table[i, at] = 1 - table[:i, at].sum()
        last = k - 1 if i == n - 1 else min(at + 1, k - 1)
        table[i, at + 1 : last] = 1
        if last > at:
            table[i, last] = sums[i] - table[i, :last].sum() if i < n - 1 else 1 - table[:i, last].sum()
        at = last
    return table


def shared(sums, k):
    """Scheme I (Song 2025): all workers share partition 0, the others are private, one each but for the first worker."""
    table = np.eye(len(sums), k)
    table[:, 0] = 0
    table[:, 0] = sums - table.sum(axis=1)
    return table


@pytest.mark.parametrize("scheme", [shared, chain])
def test_hand_made_structures_with_negative_weights_break_the_bound(scheme):
    """Both have the optimal row sums; wherever a weight is negative, some signs of g_j exceed the bound on row sums."""
    rng, negative = np.random.default_rng(8), 0
    signs = np.array(list(product([-1.0, 1.0], repeat=5)))
    for _ in range(200):
        p = rng.uniform(0.05, 0.95, 5)
        table = scheme(row_sums(p, np.zeros(5), 1.0, 5), 5)
        assert table.sum(axis=0) == pytest.approx(np.ones(5)) and table.sum(axis=1) == pytest.approx(
            row_sums(p, np.zeros(5), 1.0, 5)
        )
        worst = ((table @ signs.T) ** 2 / gains(p, np.zeros(5))[:, None]).sum(axis=0).max()
        if (table < -1e-9).any():
            negative += 1
            assert worst > least_bound(p, 5) * (1 + 1e-9)
        ours = overlap(row_sums(p, np.zeros(5), 1.0, 5), 5).toarray()
        assert ((ours @ signs.T) ** 2 / gains(p, np.zeros(5))[:, None]).sum(axis=0).max() <= least_bound(p, 5) * (1 + 1e-9)
    assert negative > 100


def test_no_other_structure_and_bits_beat_the_joint_optimum():
    rng = np.random.default_rng(4)
    n, dim, budget = 6, 1000, 30
    least = n**2 / bits(P6, budget=budget, dim=dim).objective
    for _ in range(300):
        share = rng.dirichlet(np.full(n, rng.uniform(0.2, 3)), size=n).T
        other = rng.multinomial(budget - 2 * n, rng.dirichlet(np.ones(n))) + 2
        price = 1 / gains(P6, variance("paper", dim, other))
        assert (price * share.sum(axis=1) ** 2).sum() >= least * (1 - 1e-12)


def test_identical_quadratics_contract_as_predicted():
    """E|theta|^2 shrinks by V / (1 + V) at the best step, V = 1 / Delta: 0.15680 for the grid of 50 workers."""
    p, rng = grid(50), np.random.default_rng(5)
    code = codes.optimally_structured(p)
    values = code.decoder.fixed[0] * code.messages.coef.sum(axis=1)
    coefficients = np.concatenate([(rng.random((50_000, 50)) >= p) @ values for _ in range(8)])
    step = 1 / (50 * (1 + 1 / delta(p)))
    assert ((1 - step * coefficients) ** 2).mean() == pytest.approx(1 / (1 + delta(p)), rel=0.01)
    assert 1 / (1 + delta(p)) == pytest.approx(0.15680, abs=1e-5)


def test_strongly_convex_descent_stays_below_its_bound():
    """With step 1 / (lam t), E|theta_T - theta*|^2 <= 4 G^2 / (lam^2 T), G^2 = C^2 k^2 (1 + 1 / Delta)."""
    n, dim, runs = 10, 5, 200
    p, rng = np.linspace(0.3, 0.9, n), np.random.default_rng(7)
    code = codes.optimally_structured(p)
    table = code.messages.coef.toarray()
    centres = rng.standard_normal((n, dim))
    best, theta = centres.mean(axis=0), np.zeros((runs, dim))
    longest, found = 0.0, {}
    for t in range(1, 1001):
        partials = (theta[:, None] - centres) / n  # |theta - c_j|^2 / (2 n): the sum has lam = 1
        longest = max(longest, float(np.linalg.norm(partials, axis=2).max()))
        heard = rng.random((runs, n)) >= p
        theta = theta - np.einsum("ri,ij,rjd->rd", heard[:, code.messages.worker], table, partials) / t
        found[t] = float(((theta - best) ** 2).sum(axis=1).mean())
    square = longest**2 * n**2 * (1 + 1 / delta(p))
    for steps in (100, 1000):
        assert found[steps] <= 4 * square / steps
    assert found[1000] < 0.2 * found[100], "it does go down like 1 / T"


def test_workers_that_are_never_heard_or_never_late():
    code = codes.optimally_structured([0.5, 1.0, 0.5, 0.2])
    assert 1 not in code.messages.worker and len(code.messages) == 3
    assert mean_squared_error(code, [0.5, 1.0, 0.5, 0.2]).unbiased
    sure = codes.optimally_structured([0.0, 0.5, 0.0, 0.9])
    assert sure.messages.worker.tolist() == [0, 2] and mean_squared_error(sure, [0.0, 0.5, 0.0, 0.9]).mean_squared_error == 0
    assert delta([0.0, 0.5]) == np.inf and least_bound([0.0, 0.5], k=2) == 0


def test_erasure_head_uses_the_first_of_each_group_and_is_exact_when_all_are_heard():
    code, partials = codes.erasurehead(6, s=1), np.random.default_rng(6).standard_normal((6, 3))
    messages = code.messages.coef @ partials
    got = np.array([True, False, True, True, False, True])
    assert np.allclose(code.decoder.weights(got)[0] @ messages, partials.sum(axis=0))
    got[:2] = False
    assert np.allclose(code.decoder.weights(got)[0] @ messages, partials[2:].sum(axis=0))
    rounds = simulate(code, ShiftedExponential(rate=1, shift=0.1), First(Recovered(), Deadline(1.0)), rounds=500, rng=0)
    assert rounds.time.values.max() <= 1.0 and 0 < rounds.exact.mean < 1


def test_one_step_decoding_is_as_printed():
    """n / (load |S|) for BGC; n / |S| for expanders, whose coefficients are 1 / degree."""
    held = codes.bernoulli(6, load=4, decode="one_step")
    assert len(held.messages) == 6
    got = np.array([True, False, True, True, False, True])
    assert held.decoder.weights(got)[0] == pytest.approx(6 / (4 * 4) * got)
    graph = codes.expander(6, degree=3, decode="one_step")
    assert graph.decoder.weights(got)[0] == pytest.approx(6 / 4 * got)
    assert graph.decoder.residual(np.ones(6, dtype=bool)) == pytest.approx(0, abs=1e-12), "exact when all are heard"
    assert not graph.decoder.weights(np.zeros(6, dtype=bool)).any()
    idle = codes.bernoulli(40, load=1, seed=2, decode="one_step")
    everyone = idle.decoder.weights(np.ones(len(idle.messages), dtype=bool))[0]
    assert len(idle.messages) < 40 and everyone == pytest.approx(1), "idle workers count as answering like the others"


def test_one_step_corrects_the_shrinkage_of_the_sum():
    p = np.full(12, 0.5)
    plain, scaled = (mean_squared_error(codes.bernoulli(12, load=3, decode=how), p, "identical") for how in ("sum", "one_step"))
    best = mean_squared_error(codes.bernoulli(12, load=3, decode="least_squares"), p)
    assert scaled.relative < plain.relative
    assert best.mean_squared_error < mean_squared_error(codes.bernoulli(12, load=3, decode="one_step"), p).mean_squared_error


def test_erasure_head_that_sums_counts_a_group_as_often_as_it_is_heard():
    code = codes.erasurehead(6, s=1, decode="sum")
    got = np.array([True, True, False, True, False, False])
    assert (code.decoder.weights(got)[0] @ code.messages.coef.toarray()).tolist() == [2, 2, 1, 1, 0, 0]
    assert mean_squared_error(code, 0.25).mean == pytest.approx(np.full(6, 2 * 0.75))


def overlaps(code):
    """(k, k) workers that partitions share."""
    held = (code.messages.coef.toarray() != 0).astype(int)
    return held.T @ held - np.diag(held.sum(axis=0))


@pytest.mark.parametrize("n, copies", [(7, 3), (13, 4), (31, 4), (50, 2), (50, 5)])
def test_balanced_placement_shares_at_most_one_worker_a_pair(n, copies):
    code = codes.stochastic(n, 0.5, copies=copies, placement="balanced")
    assert overlaps(code).max() == 1 and set(np.diff(code.messages.coef.indptr)) == {copies}
    assert overlaps(codes.stochastic(n, 0.5, copies=copies)).max() == copies - 1


def test_balanced_placement_of_few_workers_and_unequal_copies():
    for n, copies in [(5, 5), (6, 4), (1, 1), (2, 2)]:
        code = codes.stochastic(n, 0.5, copies=copies, placement="balanced")
        assert (code.messages.coef.toarray() != 0).sum(axis=0).tolist() == [copies] * n
    mixed = codes.stochastic(21, 0.5, copies=[1, 2, 3] * 7, placement="balanced")
    assert overlaps(mixed).max() == 1 and (mixed.messages.coef.toarray() != 0).sum(axis=0).tolist() == [1, 2, 3] * 7


def test_random_codes_depend_on_the_seed_only():
    for make in (
        lambda seed: codes.bernoulli(12, load=3, seed=seed),
        lambda seed: codes.optimal_decoding(12, degree=3, seed=seed),
        lambda seed: codes.expander(12, degree=3, seed=seed),
        lambda seed: codes.stochastic(12, 0.5, placement="random", seed=seed),
    ):
        one, again, other = (make(seed).messages.coef.toarray() for seed in (1, 1, 2))
        assert np.array_equal(one, again) and not np.array_equal(one, other)


@pytest.mark.parametrize("n, degree", [(2, 1), (8, 7), (10, 3), (11, 4), (30, 5)])
def test_graphs_are_regular_and_simple(n, degree):
    for seed in (None, 0, 1):
        table = codes.optimal_decoding(n, degree, seed=seed).messages.coef.toarray()
        assert np.array_equal(table, table.T) and (table.sum(axis=0) == degree).all()
        assert not table.diagonal().any() and set(np.unique(table)) <= {0.0, 1.0}


def test_expander_has_a_large_spectral_gap():
    table = codes.expander(40, degree=4).messages.coef.toarray()
    second = np.sort(np.abs(np.linalg.eigvalsh(table)))[-2]
    assert table.sum(axis=1) == pytest.approx(np.ones(40)) and 4 * second <= 2 * np.sqrt(3) * 1.1


@pytest.mark.parametrize("code", [*UNBIASED.values(), *BIASED.values()], ids=lambda code: code.name[:20])
def test_name_is_an_expression_and_prints(code):
    scheme = code.name.split("(")[0]
    again = eval(code.name, {name: getattr(codes, name) for name in codes.APPROXIMATE})
    assert scheme in codes.APPROXIMATE and again.name == code.name
    assert np.array_equal(again.messages.coef.toarray(), code.messages.coef.toarray())
    assert "load" in str(code)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: codes.optimally_structured([0.1, 0.2], omega=[0.1, 0.2, 0.3]), "each of the 2 workers"),
        (lambda: codes.optimally_structured(0.5), r"\[p\] \* n"),
        (lambda: codes.optimally_structured([]), "one straggle probability"),
        (lambda: codes.optimally_structured([0.1, 1.2]), "0 <= p <= 1"),
        (lambda: codes.optimally_structured([0.1, -0.2]), "0 <= p <= 1"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=4), "needs dim"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=[4], dim=10), "or 2 of them"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=[4, 17], dim=10), "bits=17"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=[4, -1], dim=10), "bits=-1"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=4.0, dim=10), "whole bits"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=4, dim=0), "1 <= dim"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=4, dim=10, omega="gauss"), "qsgd"),
        (lambda: codes.optimally_structured([0.5, 0.5], omega="qsgd"), "needs bits"),
        (lambda: codes.optimally_structured([0.5, 0.5], bits=4, dim=10, bucket=100), "multiple of 512"),
        (lambda: codes.optimally_structured([0.1, float("nan")]), "0 <= p <= 1"),
        (lambda: codes.optimally_structured(["late", "later"]), "2 numbers"),
        (lambda: codes.optimally_structured([1.0, 1.0]), "some p must be below 1"),
        (lambda: codes.optimally_structured([0.5, 0.5], omega=-1), "omega >= 0"),
        (lambda: codes.optimally_structured([0.5, 0.5], gamma=float("inf")), "gamma >= 0"),
        (lambda: codes.optimally_structured([0.5, 0.5], k=0), "1 <= k"),
        (lambda: codes.optimally_structured([0.5, 0.5], construction="chain"), "overlap"),
        (lambda: codes.stochastic(3, [0.5, 1.0, 0.5]), "worker 1 has p=1"),
        (lambda: codes.stochastic(3, 0.5, copies=[0, 1, 1]), "1 <= copies"),
        (lambda: codes.stochastic(3, 0.5, copies=1.5), "1 <= copies"),
        (lambda: codes.stochastic(3, 0.5, placement="near"), "cyclic"),
        (lambda: codes.stochastic(100, 0.5, copies=65, placement="balanced"), "copies <= 64"),
        (lambda: codes.bernoulli(5, load=2, decode="mean"), "decode='mean'"),
        (lambda: codes.expander(6, degree=3, decode="sum"), "decode='sum'"),
        (lambda: codes.expander(6, degree=3, p=0.5, decode="one_step"), "not both"),
        (lambda: codes.erasurehead(6, s=1, decode="last"), "decode='last'"),
        (lambda: codes.ignore_stragglers(3, p=1.0), "p < 1"),
        (lambda: codes.erasurehead(6, s=3), "s=\\[0, 1, 2, 5\\]"),
        (lambda: codes.optimal_decoding(5, degree=3), "Use degree=4"),
        (lambda: codes.optimal_decoding(5, degree=5), "degree <= 4"),
        (lambda: codes.optimal_decoding(6, degree=3, seed=-1), "0 <= seed"),
        (lambda: codes.stochastic(3, 0.5, seed=0.5), "0 <= seed"),
        (lambda: codes.bernoulli(5, load=6), "load <= 5"),
        (lambda: lemma_bound(codes.erasurehead(4, s=1), 0.5), "fixed weights"),
        (lambda: mean_squared_error(codes.ignore_stragglers(3), 0.5, "equal"), "orthonormal"),
        (lambda: mean_squared_error(codes.ignore_stragglers(3), 0.5, np.ones((2, 2))), "shape"),
        (lambda: mean_squared_error(codes.ignore_stragglers(3), 0.5, gram=np.ones((2, 2))), "gram"),
        (lambda: mean_squared_error(codes.optimal_decoding(20, degree=2), 0.5, rounds=1), "2 <= rounds"),
        (lambda: mean_squared_error(codes.lagrange(6, load=2), 0.5), "raw data"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(Invalid, match=message):
        make()
