"""Every example runs, in a short form."""

import importlib.util
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import unstraggle as us
from unstraggle.testing import check_code, check_engine

from ..commands import run_script

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))
SMALLER = {
    "shuttle.py": ["--rows", "4000"],
    "bytes_gpt.py": ["--scheme", "quantize(fractional_repetition(2, s=1), bits=8, bucket=512)"],
    "digits.py": ["--scheme", "cyclic_repetition(2, s=1)"],
    "mnist.py": ["--scheme", "correlated_mmc(2, load=2, order=1)"],
    "resnet.py": ["--scheme", "blocks([2, 1], uncoded(2), cyclic_repetition(2, s=1))"],
}
"""Two workers instead of four, or fewer data."""


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script):
    """In this process, whose workers need not import PyTorch again."""
    done = run_script(FOLDER / script, "--steps", "8", *SMALLER.get(script, []))
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert len(losses) == 2 and losses[-1] < losses[0]


def test_the_table_names_every_example():
    assert sorted(re.findall(r"^\| `(\w+\.py)`", (FOLDER / "README.md").read_text(), re.MULTILINE)) == SCRIPTS


def loaded(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("groups", "slow"), [(1, 1), (1, 4), (3, 2), (5, 3)])
def test_own_scheme_keeps_its_promises(groups, slow):
    code = loaded("own_scheme").stand_ins(groups, slow)
    assert check_code(code).worst_error < 1e-12
    assert (code.n, code.k) == (groups * (slow + 1), groups * slow)
    assert np.isclose(code.tasks.work.sum() / 2, code.n)  # everything twice


def test_own_scheme_survives_its_fast_worker_or_its_slow_ones():
    rule = loaded("own_scheme").stand_ins(2, slow=2).decoder.rule
    met = [bool(rule.met(~np.isin(np.arange(6), gone))) for gone in ([0, 3], [1, 2, 4, 5], [0, 5], [0, 1], [3, 4])]
    assert met == [True, True, True, False, False]
    with pytest.raises(us.Invalid, match="groups >= 1"):
        loaded("own_scheme").stand_ins(0, slow=2)


def test_own_engine_keeps_its_promises():
    report = check_engine(loaded("own_engine").Threads)
    assert report.codes >= 14 and report.worst_error < 1e-9


def test_own_engine_cuts_delays_short_and_ends_its_threads():
    before, code = set(threading.enumerate()), us.codes.cyclic_repetition(4, s=1)
    engine = loaded("own_engine").Threads(us.problems.Logistic.random(code, dim=5, samples=40))
    with us.Master(code, engine) as master:
        delays = np.array([0.0, 0.05, 0.0, 60.0])
        for _ in range(3):  # the worker that is held up for a minute must be back for the next round
            estimate = master.gradient(np.zeros(5), delays=delays)
            assert estimate.exact and estimate.wait >= 0.05 and not estimate.got[3]
        assert master.gradient(np.zeros(5), delays=np.array([60.0, 0, 0, 0])).got[3]
    while set(threading.enumerate()) - before:  # pytest ends what hangs
        time.sleep(0.01)


def test_own_engine_hands_on_what_a_worker_raises():
    code = us.codes.uncoded(2)
    problem = us.problems.Logistic.random(code, dim=5, samples=40)
    engine = loaded("own_engine").Threads(Failing(problem))
    with us.Master(code, engine) as master, pytest.raises(us.engines.WorkerFailed, match="not today"):
        master.gradient(np.zeros(5))


class Failing:
    """A problem whose second partition raises an error."""

    def __init__(self, problem):
        self.problem, self.k, self.dim, self.dtype = problem, problem.k, problem.dim, problem.dtype

    def grad(self, params, part, where=slice(None), step=0):
        if part == 1:
            raise ArithmeticError("not today")
        return self.problem.grad(params, part, where, step)
