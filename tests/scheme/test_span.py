"""Recovered by span: the incremental test against solving from scratch, and the kernel against both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from unstraggle import LeastSquares, NotRecovered, Span, codes
from unstraggle.scheme import recovery_times as kernels
from unstraggle.scheme.recovery import Basis


def rows_of(seed, complex_rows):
    rng = np.random.default_rng(seed)
    rows = rng.choice([0, 0, 1, 1, -1, 2], (9, 5)).astype(float)
    rows[rows.any(axis=1) == 0, 0] = 1
    return rows * np.exp(1j * rng.random((9, 1))) if complex_rows else rows


@given(st.integers(0, 10**6), st.booleans(), st.permutations(range(9)))
@settings(max_examples=200, deadline=None)
def test_incremental_test_agrees_with_least_squares_after_every_arrival(seed, complex_rows, order):
    part = Span(csr_array(rows_of(seed, complex_rows)))
    progress, got = Basis(part).begin(), np.zeros(9, dtype=bool)
    for message in order:
        progress.add(message)
        got[message] = True
        assert progress.met == (part.residual(got) < 1e-9)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_kernel_agrees_with_the_incremental_test(seed, complex_rows):
    part = Span(csr_array(rows_of(seed, complex_rows)))
    arrivals = np.random.default_rng(seed).exponential(size=(20, 9))
    arrivals[:5, 3] = np.inf
    for row, time in zip(arrivals, kernels.span_times(part, arrivals), strict=True):
        progress, expected = Basis(part).begin(), np.inf
        for message in np.argsort(row):
            if row[message] < np.inf and not progress.met:
                progress.add(int(message))
                expected = row[message] if progress.met else np.inf
        assert time == expected


@pytest.mark.parametrize("n, s", [(40, 9), (100, 24), (60, 30)])
def test_incremental_test_keeps_its_digits_on_large_codes(n, s):
    code, rng = codes.cyclic_repetition(n, s), np.random.default_rng(n)
    for _ in range(20):
        progress = Basis(code.decoder).begin()
        needed = 0
        for message in rng.permutation(n):
            needed += not progress.met
            progress.add(int(message))
        assert needed == n - s


def test_weights_use_all_arrivals_and_amplify_less_noise():
    code = codes.cyclic_repetition(10, s=4)
    gains = [np.linalg.norm(code.decoder.weights(np.arange(10) < count)[0]) for count in (6, 8, 10)]
    assert gains[0] > gains[1] > gains[2]
    assert (code.decoder.weights(np.ones(10, dtype=bool))[0] != 0).all()


def test_copies_of_a_message_share_its_weight():
    code = codes.fractional_repetition(4, s=1)
    assert code.decoder.weights(np.array([True, True, True, False]))[0] == pytest.approx([0.5, 0.5, 1.0, 0.0])


def test_solutions_are_cached_by_survivor_set(monkeypatch):
    from unstraggle.scheme import decoders

    calls = []
    solve = decoders.lstsq
    monkeypatch.setattr(decoders, "lstsq", lambda *args, **kwargs: calls.append(1) or solve(*args, **kwargs))
    monkeypatch.setattr(decoders, "CACHED_SETS", 2)
    part = codes.cyclic_repetition(6, s=2).decoder
    first, second, third = (np.isin(np.arange(6), gone, invert=True) for gone in ([0], [1], [2]))
    for got in (first, first, second, first, third, first, second):
        part.weights(got)
    assert len(calls) == 4, "first, second, third, and second again after it was dropped"


def test_exact_decoding_refuses_what_least_squares_approximates():
    rows = csr_array(np.eye(3))
    got = np.array([True, True, False])
    with pytest.raises(NotRecovered, match=r"2 messages leave a relative error of 0\.58"):
        Span(rows).weights(got)
    assert LeastSquares(rows).weights(got).tolist() == [[1.0, 1.0, 0.0]]
    assert LeastSquares(rows).residual(got) == pytest.approx(np.sqrt(1 / 3))
    assert LeastSquares(rows).weights(np.zeros(3, dtype=bool)).tolist() == [[0.0, 0.0, 0.0]]


def test_basis_stays_orthogonal_when_rows_are_nearly_dependent():
    """One Gram-Schmidt pass would leave inner products of about 1e-16 / 1e-7."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1, 30)) + 1e-7 * rng.standard_normal((20, 30))
    progress = Basis(Span(csr_array(rows))).begin()
    for message in range(20):
        progress.add(message)
    assert np.abs(progress._basis @ progress._basis.T - np.eye(20)).max() < 1e-14
