"""What `plan.auto` says of traces that tell too little: why, and no table of savings."""

import numpy as np
import pytest

from unstraggle import Invalid, Master, codes, diagnose, parse_code, problems
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential, Replay
from unstraggle.plan import auto, block_sizes
from unstraggle.testing import same_code
from unstraggle.trace import from_seconds, read


def times(rounds=60, n=4, seed=0):
    return 1 + np.random.default_rng(seed).exponential(1, (rounds, n))


def lost(*where):
    """Rounds in which a worker finishes nothing at some places."""
    found = times()
    for place in where:
        found[place] = np.inf
    return found


@pytest.mark.parametrize("code", [codes.cyclic_repetition(4, s=1), codes.uncoded_mmc(4, load=2)], ids=lambda code: code.name)
def test_rounds_of_a_code_do_not_tell_how_late_workers_were(code, tmp_path):
    """It ended in an error of the linear program."""
    problem = problems.LeastSquares.split(np.eye(4), np.ones(4), parts=4)
    with Master(code, Virtual(problem, Exponential(rate=1.0), rng=0), trace=tmp_path / "trace.jsonl") as master:
        for _ in range(40):
            master.gradient(np.zeros(4))
    advice = auto(read(tmp_path / "trace.jsonl"))
    assert advice.verdict.startswith(f"Cannot predict: recorded under {code.name}, ") and '"uncoded(4)"' in advice.verdict
    assert advice.chosen is None and not advice.candidates and advice.line is None and "saved" not in str(advice)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (lost((slice(30, None), 2)), "worker 2 finishes nothing from round 30 on"),
        (lost((slice(None), 1)), "worker 1 finishes nothing from round 0 on"),
        (lost((45, 1)), "a worker finishes nothing in 1 of 60 rounds, all in the second half"),
        (lost((slice(5, 20), 3)), "a worker finishes nothing in 15 of 60 rounds, all in the first half"),
        (lost((10, 2), (50, slice(None))), "nobody finishes anything in 1 of 60 rounds"),
    ],
    ids=range(5),
)
def test_a_worker_that_died_is_named_instead_of_waited_for(seconds, words):
    """It said "wait for all" above a table with inf."""
    advice = auto(seconds)
    assert advice.verdict.startswith(f"Cannot predict: {words}") and not advice.candidates


def test_a_diagnosis_names_it_too():
    found = diagnose(lost((slice(30, None), 2)))
    assert found.kind == "unknown" and found.reasons[0].startswith("worker 2 finishes nothing from round 30 on")


def test_workers_that_now_and_then_finish_nothing_are_coded_for():
    seconds = times()
    seconds[np.random.default_rng(1).random(seconds.shape) < 0.03] = np.inf
    seconds[-5:] = times()[-5:]
    advice = auto(seconds)
    assert np.isfinite(advice.chosen.time) and "waiting for all never ends" in advice.verdict and "saves" not in advice.verdict
    found = block_sizes(Replay(seconds), 4, 100)
    assert found.params["sizes"][0] == 0 and found.bound <= found.cost < np.inf
    with pytest.raises(Invalid, match="needs times that end"):
        block_sizes(Replay(seconds), 4, 100, "subgradient")


@pytest.mark.parametrize("max_load, name", [(1, "block_sizes(optimal)"), (2, "work_conserving(6, load=2, pieces=")])
def test_what_is_chosen_can_be_pasted(max_load, name):
    """It said "block_sizes(optimal)", which no command accepts."""
    advice = auto(Exponential(rate=1.0), n=6, rounds=2000, max_load=max_load, blocks=True)
    assert advice.chosen.name.startswith(name)
    command, *_ = advice.line.removeprefix('unstraggle run "').split('"')
    assert advice.line == f'unstraggle run "{command}" -o out/run' and advice.to_dict()["code"] == command
    assert same_code(parse_code(command), advice.chosen.plan.code)


def test_drift_alone_is_told_apart():
    assert auto(from_seconds(times(200) * np.linspace(1, 3, 200)[:, None])).verdict.startswith(
        "Cannot predict: the trace drifts"
    )
