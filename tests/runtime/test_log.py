"""A recorded run, kills included, decided again from its log."""

import json

import numpy as np
import pytest

from unstraggle import Diverged, Invalid, Master, codes, replay_log
from unstraggle.engines import Chaos, Local, Virtual
from unstraggle.latency import Exponential

from ..problems import Constant


def test_a_run_with_kills_replays_to_the_same_instructions(tmp_path):
    code, path = codes.fractional_repetition(4, s=1), tmp_path / "run.log"
    problem = Constant(4, seconds=0.002)
    engine = Chaos(Local(problem, restarts=50), kill=0.5, duplicate=0.2, corrupt=0.1, rng=3)
    with Master(code, engine, log=path) as master:
        estimates = [master.gradient(np.zeros(8)) for _ in range(30)]
    np.testing.assert_allclose([estimate.gradient for estimate in estimates], problem.total)
    assert any(estimate.lost for estimate in estimates)
    rounds = replay_log(path, code)
    assert [round.time for round in rounds] == [estimate.wait for estimate in estimates]
    assert [round.got.tolist() for round in rounds] == [estimate.got.tolist() for estimate in estimates]
    assert "Lost" in path.read_text() and "Ask" in path.read_text()


def test_another_decision_is_noticed(tmp_path):
    code, path = codes.cyclic_repetition(4, s=1), tmp_path / "run.log"
    with Master(code, Virtual(Constant(4), Exponential(rate=1.0), rng=0), log=path) as master:
        master.gradient(np.zeros(8))
    assert len(replay_log(path, code)) == 1
    with pytest.raises(Invalid, match="The log is of cyclic_repetition"):
        replay_log(path, codes.uncoded(4))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["instructions"] = []
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(Diverged, match="Round 0, step 3: recorded"):
        replay_log(path, code)


def test_a_full_disk_costs_the_log_and_not_the_run(tmp_path, monkeypatch, caplog):
    code = codes.uncoded(4)
    with pytest.raises(Invalid, match=r"The log .* is not a file"):
        Master(code, Virtual(Constant(4), Exponential(rate=1.0), rng=0), log=tmp_path)
    with Master(code, Virtual(Constant(4), Exponential(rate=1.0), rng=0), log=tmp_path / "run.log") as master:
        master._log._file.close()
        monkeypatch.setattr(master._log, "_file", open("/dev/full", "w"))  # noqa: SIM115, the log closes it
        assert all(master.gradient(np.zeros(8)).exact for _ in range(100))
    assert caplog.text.count("cannot be written any more") == 1 and "No space left" in caplog.text
