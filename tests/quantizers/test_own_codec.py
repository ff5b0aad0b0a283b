"""A codec in one file of an outside package: it keeps the contract, runs live, and is not let to write past the sum."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import unstraggle as us
from unstraggle.quantizers import QSGD, Codec, ErrorFeedback, Unbiased
from unstraggle.testing import check_codec, check_engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_codec.py"


@pytest.fixture
def TopK(tmp_path, monkeypatch):
    """The class, from a package that knows the library and is not known to it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").touch()
    shutil.copy(EXAMPLE, tmp_path / "outside" / "codec.py")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("outside.codec", fromlist=["TopK"]).TopK
    for name in ("outside.codec", "outside"):
        sys.modules.pop(name, None)


def test_the_how_to_page_shows_the_example_as_it_is():
    page = (EXAMPLE.parents[1] / "docs" / "howto" / "own_codec.md").read_text()
    assert "```{literalinclude} ../../examples/own_codec.py\n" in page


def test_the_example_imports_public_names_only():
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.startswith(("import unstraggle", "from unstraggle"))]
    assert {line.split()[1] for line in lines} <= {"unstraggle", "unstraggle.quantizers", "unstraggle.testing"}


@pytest.mark.parametrize("share", [0.001, 0.05, 1.0])
def test_it_keeps_the_contract_and_claims_no_more(TopK, share):
    codec = TopK(share)
    assert isinstance(codec, Codec) and not isinstance(codec, Unbiased)
    assert check_codec(codec).worst_z is None
    assert check_codec(ErrorFeedback(codec)).worst_z is None


def test_it_runs_live_and_its_sums_are_what_was_sent(TopK):
    """On processes and on the sampled clock, alone and beside plain and quantised messages."""
    own = us.codes.quantize(us.codes.cyclic_repetition(4, s=1), codec=TopK(0.3), force=True)
    mixed = us.codes.quantize(us.codes.uncoded(3), codec=[TopK(0.3), QSGD(4), us.quantizers.Plain()])
    for make in (us.engines.Local, lambda problem: us.engines.Virtual(problem, us.latency.Exponential(rate=1.0), rng=0)):
        report = check_engine(make, [own, mixed], dim=40, rounds=2, faults=False)
        assert report.rounds == 4 and report.worst_error < 1e-9


def test_it_trains_live_with_feedback(TopK):
    code = us.codes.quantize(us.codes.fractional_repetition(2, s=1), codec=ErrorFeedback(TopK(0.1)))
    problem, params = us.problems.Logistic.random(code, dim=50, samples=200), np.zeros(50)
    start = problem.loss(params)
    with us.Master(code, us.engines.Local(problem)) as master:
        for step in range(60):
            estimate = master.gradient(params, step)
            params -= 0.005 * estimate.gradient
    assert estimate.bytes == 5 * 8 * estimate.messages and problem.loss(params) < 0.7 * start


@pytest.mark.parametrize("checked", [True, False], ids=["with a frame's checksum", "without"])
def test_changed_payloads_never_write_past_the_sum(TopK, checked):
    """The frame's checksum finds changes on the way; where there is none, the codec still refuses places that do not exist."""
    code = us.codes.quantize(us.codes.fractional_repetition(2, s=1), codec=TopK(0.1))

    class Lying(us.engines.Virtual):
        def next(self, until):
            found = super().next(until)
            for message in found:
                if message.worker == 0:
                    message.payload = message.payload.copy()
                    message.payload[-8:-4] = 255
                message.checksum = message.checksum if checked else None
            return found

    problem = us.problems.Logistic.random(code, dim=50, samples=200)
    with us.Master(code, Lying(problem, us.latency.Exponential(rate=1.0), rng=0)) as master:
        estimate = master.gradient(np.zeros(50), delays=np.array([0.1, 0.2]))
    assert estimate.damaged == 1 and estimate.got.tolist() == [False, True] and np.isfinite(estimate.gradient).all()
