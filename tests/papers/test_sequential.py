"""Sequential gradient coding (Krishnan, Ebrahimi and Khisti 2023), as benchmarks/claims.py plays it, keeps its promise."""

import json
from itertools import product

import numpy as np
import pytest

from benchmarks import claims

from .page_numbers import PAPERS

PAGE = " ".join((PAPERS.parent / "docs" / "claims.md").read_text().split())
RESULT = json.loads((PAPERS.parent / "benchmarks" / "results" / "claims.json").read_text())
FOUND = {(row["setting"], row["scheme"]): row for row in RESULT["rows"]}
FITS, NEVER = tuple(f"fit {number}" for number in range(1, 5)), "fit 1, never twice running"


def conforming(n, rounds, *model):
    """All stragglers (rounds, n) that a bursty model allows."""
    patterns = [np.zeros((0, n), dtype=bool)]
    each = [np.array(late, dtype=bool) for late in product((False, True), repeat=n)]
    for _ in range(rounds):
        longer = (np.vstack([before, late]) for before in patterns for late in each)
        patterns = [late for late in longer if claims.bursty(late, *model)]
    return patterns


def slowly(late, b, w, lam):
    """The same model, by its definition: in each window at most lam stragglers, and from first to last less than b rounds."""
    windows = [late[at : at + w] for at in range(max(1, len(late) - w + 1))]
    spans = [np.flatnonzero(column) for window in windows for column in window.T]
    return all(window.any(axis=0).sum() <= lam for window in windows) and all(np.ptp(x) < b for x in spans if len(x))


@pytest.mark.parametrize("model", [(1, 2, 1), (1, 2, 2), (2, 3, 2), (1, 3, 1)])
def test_the_straggler_model_is_the_one_of_the_paper(model):
    every = [np.array(late, dtype=bool).reshape(4, 3) for late in product((False, True), repeat=12)]
    assert sum(slowly(late, *model) for late in every) == len(conforming(3, 4, *model))
    assert all(slowly(late, *model) for late in conforming(3, 4, *model))


@pytest.mark.parametrize("n, model", [(3, (1, 2, 1)), (4, (1, 2, 2)), (4, (1, 3, 2)), (3, (2, 3, 2)), (3, (2, 4, 2))])
def test_multiplexed_has_every_job_in_time(n, model):
    b, w, _ = model
    patterns = conforming(n, w - 1 + b, *model)
    assert len(patterns) > 1 and all(claims.multiplexed_decodes(late, *model) for late in patterns)


@pytest.mark.parametrize("n, model", [(3, (1, 2, 1)), (4, (1, 2, 2)), (4, (1, 3, 3)), (3, (2, 3, 2))])
def test_selective_repeat_has_every_job_in_time(n, model):
    patterns = conforming(n, 5, *model)
    assert len(patterns) > 1 and all(claims.selective_decodes(late, *model) for late in patterns)


def test_more_stragglers_than_promised_are_too_many():
    twice = np.array([[True, False, False], [True, False, False]])
    assert not claims.bursty(twice, 1, 2, 1) and not claims.multiplexed_decodes(twice, 1, 2, 1)
    many = np.array([[True, True, True, False]] * 2)
    assert not claims.bursty(many, 1, 2, 2) and not claims.selective_decodes(many, 1, 2, 2)


@pytest.mark.parametrize("n, b, w, lam", [(256, 1, 2, 27), (4, 2, 3, 2), (5, 1, 4, 3)])
def test_the_load_is_that_of_the_tasks(n, b, w, lam):
    """Tasks are alike: a plain piece is lam + 1 chunks, a coded task goes through lam + 1 of the n chunks of its group."""
    chunks = n * (w - 1) * (lam + 1) + b * n
    assert claims.multiplexed_load(n, b, w, lam) == pytest.approx((w - 1 + b) * (lam + 1) / chunks)


def test_loads_are_the_published_ones():
    assert claims.multiplexed_load(256, 1, 2, 27) == pytest.approx(0.007543103448275862)
    assert (claims.repeated(2, 3, 23) + 1) / 256 == 0.05078125 and (claims.S + 1) / 256 == 0.0625


def test_a_round_ends_by_their_rule():
    times = np.array([[1.0, 1.5, 3.0], [1.0, 3.0, 4.0], [1.0, 1.1, 1.2]])
    at_most_one = lambda late: late[-1].sum() <= 1  # noqa: E731
    assert claims.by_their_rule(times, 1.0, at_most_one).tolist() == [2.0, 4.0, 1.2]
    assert claims.by_their_rule(times, 1.0, at_most_one, all_of=False).tolist() == [2.0, 3.0, 1.2]


def saved(name, settings=FITS):
    shares = [100 * (1 - FOUND[setting, name]["of_gc"]) for setting in settings]
    return f"{min(shares):.0f} to {max(shares):.0f} %"


def test_the_page_says_what_was_measured():
    assert f"rule: {saved('M-SGC, mu=1.0')} in the fits" in PAGE
    assert f"and {100 * (1 - FOUND[NEVER, 'M-SGC, mu=1.0']['of_gc']):.0f} % where no worker straggles twice running" in PAGE
    assert f"at most {max(100 * abs(FOUND[fit, 'SR-SGC, mu=1.0']['of_gc'] - 1) for fit in FITS):.1f} %, so" in PAGE
    assert f"takes {saved('repetition, 2 copies, carried')} less than GC in the fits, carry-over counted" in PAGE
    assert f"with eight copies {saved('repetition, 8 copies, carried')}." in PAGE
    ended = saved("GC, the first 241"), saved("GC, the first 241, carried")
    assert f"takes {ended[0]} less in the fits, and {ended[1]} with carry-over" in PAGE
    for name, theirs in RESULT["published"].items():
        assert all(abs(FOUND[fit, name]["seconds"] / theirs - 1) < 0.05 for fit in FITS)


def ahead(one, other):
    """1 or -1: which is faster by more than their intervals; 0: not resolved."""
    gap = other["of_gc"] - one["of_gc"]
    return int(np.sign(gap)) if abs(gap) > one["of_gc_half"] + other["of_gc_half"] else 0


@pytest.mark.parametrize("setting, carried", [*((fit, int(fit != "fit 3")) for fit in FITS), (NEVER, -1)])
def test_who_is_ahead_is_what_the_page_says(setting, carried):
    rows = {name: row for (where, name), row in FOUND.items() if where == setting}
    best = min((row for name, row in rows.items() if name.startswith("M-SGC")), key=lambda row: row["of_gc"])
    assert (best["scheme"] == "M-SGC, mu=0.5, few") == (setting != "fit 4")
    assert all(ahead(rows[f"repetition, {copies} copies, carried"], best) == 1 for copies in (2, 4, 8, 16))
    assert ahead(rows["GC, the first 241"], best) == 1 and ahead(rows["GC, the first 241, carried"], best) == carried
    assert ahead(rows["M-SGC, mu=1.0"], rows["GC, mu=1.0"]) == 1


def test_who_is_late_begins_later_or_not_at_all():
    times = np.array([[1.0, 4.0], [1.0, 1.0], [1.0, 1.0], [3.0, 1.5]])
    assert claims.carried(times, lambda row: float(row.min())) == 1 + 1 + 1 + 2.5  # busy for 3, 2, 1 more


def test_one_run_is_played_again():
    """Two runs of the first fit: their mean is near that of all in the file."""
    runs = [dict(claims.totals(claims.drawn("fit 1", seed))) for seed in range(2)]
    for name, row in ((name, FOUND["fit 1", name]) for name in runs[0]):
        mean = (runs[0][name] + runs[1][name]) / 2
        assert abs(mean - row["seconds"]) < 5 * max(row["seconds_half"], 0.05)
