"""Every public code, up to 60 workers: where the gradient is called exact, it has its digits."""

from contextlib import suppress

import numpy as np
import pytest

from unstraggle import Invalid, Master
from unstraggle.codes import SCHEMES
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential
from unstraggle.problems import LeastSquares
from unstraggle.runtime.gather import Gather
from unstraggle.runtime.message import Message
from unstraggle.scheme.noise import survivor_sets

from ..examples import example
from ..folding import folded
from .test_digits import ALLOWED, DIM, payloads

SIZES = (4, 12, 30, 60)
SETS = 4
"""Random survivor sets, and as many contiguous ones, of each code."""

FAMILIES = {
    "bernoulli": ("bernoulli({n}, load=3, decode='least_squares')", "bernoulli({n}, load=2)"),
    "blocks": ("blocks([1, 2], cyclic_repetition({n}, s=1), cyclic_repetition({n}, s={third}))",),
    "cluster": (
        "cluster(correlated_mmc({half}, load=2, order=2), times=2)",
        "cluster(cyclic_repetition({half}, s=1), uncoded({half}))",
    ),
    "communication_efficient": (
        "communication_efficient({n}, s=1, blocks=2)",
        "communication_efficient({n}, s={third}, blocks=2)",
    ),
    "correlated_mmc": ("correlated_mmc({n}, load=3, order=2)", "correlated_mmc({n}, load={half}, order=2)"),
    "cyclic_repetition": tuple(
        f"cyclic_repetition({{n}}, s={s}, construction='{how}')"
        for how in ("fourier", "random", "null_space")
        for s in ("1", "{third}", "{half}")
    ),
    "erasurehead": ("erasurehead({n}, s=1)", "erasurehead({n}, s=1, decode='sum')"),
    "expander": ("expander({n}, degree=3)", "expander({n}, degree=3, decode='one_step')"),
    "fractional_repetition": ("fractional_repetition({n}, s=1)", "fractional_repetition({n}, s={last})"),
    "graph_assignment": ("graph_assignment({even}, degree=3)",),
    "group_based": ("group_based({speeds}, s=1)", "group_based({speeds}, s={third})"),
    "heterogeneity_aware": ("heterogeneity_aware({speeds}, s=1)", "heterogeneity_aware({speeds}, s={third})"),
    "hybrid": ("hybrid(uncorrelated_mmc({n}, load=3, orders=[2, 3]))",),
    "ignore_stragglers": ("ignore_stragglers({n}, p=0.2)",),
    "lagrange": ("lagrange({n}, load={half})", "lagrange({n}, load={tenth})"),
    "optimal_decoding": ("optimal_decoding({n}, degree=3)",),
    "optimally_structured": ("optimally_structured({p})",),
    "partial_stragglers": ("partial_stragglers({n}, s=1, slowdown=4)", "partial_stragglers({n}, s={third}, slowdown=4)"),
    "quantize": ("quantize(cyclic_repetition({n}, s=1), bits=32)",),
    "reed_solomon": tuple(
        f"reed_solomon({{n}}, s={s}{field})" for s in ("1", "{third}", "{half}") for field in ("", ", field='real'")
    ),
    "stack": ("stack(uncoded({n}), cyclic_repetition({n}, s={third}), shares=[0.25, 0.75])",),
    "stochastic": ("stochastic({n}, p=0.3)",),
    "two_track": ("two_track(stochastic({n}, p=0.2), p=0.2, omega=0.1)",),
    "uncoded": ("uncoded({n})",),
    "uncoded_mmc": ("uncoded_mmc({n}, load=3)",),
    "uncorrelated_mmc": ("uncorrelated_mmc({n}, load=3, orders=[1, 3])", "uncorrelated_mmc({n}, load=3, orders=[2, 3])"),
}
"""Expressions of each scheme for n workers; quantised messages hold fewer digits than the type has: here they have all."""


def built(scheme):
    """(expression, code) at all sizes; what cannot keep its digits may be refused when built, but not at all sizes."""
    found = {}
    for text, expression in expressions(scheme):
        with suppress(Invalid):
            found.setdefault(text, []).append((expression, example(expression)))
    assert found.keys() == set(FAMILIES[scheme])
    return [one for some in found.values() for one in some]


def expressions(scheme):
    for n in SIZES:
        numbers = {"n": n, "half": n // 2, "third": n // 3, "tenth": max(3, n // 10), "last": n - 1, "even": n + n % 2}
        for text in FAMILIES[scheme]:
            late, speeds = [round(0.1 + 0.4 * worker / n, 3) for worker in range(n)], [1 + worker % 3 for worker in range(n)]
            yield text, text.format(**numbers, p=late, speeds=speeds)


def arrived_sets(code):
    """Random and contiguous sets that just recover, and all messages but those of the first or last workers."""
    yield from survivor_sets(code, SETS, rng=1)
    for gone in (1, code.n // 3):
        yield code.messages.worker >= gone
        yield code.messages.worker < code.n - gone


def test_every_public_scheme_is_tried():
    """Of codes that hand out tasks every partition is in one sum, whoever is missing: there is no survivor set to decode."""
    assert FAMILIES.keys() == {name for name, facts in SCHEMES.items() if facts.group != "handed"}


@pytest.mark.parametrize("scheme", [name for name in FAMILIES if name != "lagrange"])
def test_what_is_exact_has_its_digits(scheme):
    """Twenty late neighbours of forty, and the gradient was wrong by 420 %, exact all the same."""
    exact = 0
    with folded() as case:
        for expression, code in built(scheme):
            with case(expression):
                exact += digits_kept(code)
    assert exact or not SCHEMES[scheme].exact


def digits_kept(code):
    """How many sets were called exact, in both types; fails where one of them is not."""
    found = 0
    grads = np.random.default_rng(0).standard_normal((code.k, DIM))
    total = grads.sum(axis=0)
    sets = [(got, code.decoder.decode(got)) for got in arrived_sets(code)]
    for kind, allowed in ALLOWED.items():
        sent, eps, gather = payloads(code, grads.astype(kind)), float(np.finfo(kind).eps), Gather(code, DIM, np.dtype(kind))
        for got, decoded in sets:
            if decoded.exact(eps):
                found += 1
                gather.clear()
                arrived = np.flatnonzero(got).tolist()
                gather.add([Message(int(code.messages.worker[m]), m, 0, 0.0, sent[m]) for m in arrived])
                error = np.linalg.norm(gather.finish(decoded.weights)[0] - total) / np.linalg.norm(total)
                assert error < allowed, (kind, arrived)
    return found


def test_encoded_data():
    """Lagrange: partial gradients of combinations of the data, in float64, which is all that its problem has."""
    rng, params, exact = np.random.default_rng(0), np.ones(6), 0
    features, labels = rng.standard_normal((120, 6)), rng.standard_normal(120)
    total = features.T @ (features @ params - labels)
    with folded() as case:
        for expression, code in built("lagrange"):
            with case(expression):
                problem = LeastSquares.split(features, labels, int(code.data.shape[1]))
                try:
                    master = Master(code, Virtual(problem, Exponential(rate=1.0), rng=0), on_shortfall="approximate")
                except Invalid:
                    continue
                for first in (*range(0, code.n, max(1, code.n // 4)), *[None] * 4):
                    place = rng.permutation(code.n) if first is None else (np.arange(code.n) - first) % code.n
                    estimate = master.gradient(params, delays=1.0 + place[code.messages.worker])
                    exact += estimate.exact
                    error = np.linalg.norm(estimate.gradient - total) / np.linalg.norm(total)
                    assert not estimate.exact or error < ALLOWED["f8"], first
    assert exact > 20
