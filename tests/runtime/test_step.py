"""The record of a step: wall-clock and wait are two things, and where the time went adds up."""

import json
import time

import numpy as np
import pytest

from unstraggle import Master, codes, engines, latency, problems
from unstraggle.engines import Chaos, Local, Virtual
from unstraggle.runtime.message import Message
from unstraggle.runtime.step import Split, Step, computed, spent

from ..problems import Constant

LATENCY = latency.ShiftedExponential(rate=50.0, shift=0.01)


def parts(step):
    return sum(vars(step.split).values())


def message(worker, arrived, *times):
    return Message(worker, worker, 0, arrived, np.zeros(8, np.uint8), times=times or None)


def test_what_was_spent_adds_up():
    """Worker 1 ended the round; 2 was still at it; 3 is lost; the round began 0.5 s after the last gradient."""
    messages = [message(0, 0.3, 0.1, 0.2), message(1, 1.0, 0.1, 0.5, 0.6, 0.8)]
    found = spent(messages, computed(messages, codes.uncoded(4)), 1.5, 1.7, 0.5, busy={2}, lost={3})
    split = found["split"]
    assert vars(split) == pytest.approx({"compute": 0.6, "transfer": 0.2, "slack": 0.7, "decode": 0.2, "outside": 0.5})
    assert found["wall"] == pytest.approx(2.2) == sum(vars(split).values())
    assert found["idle"] == pytest.approx(2.2 - (0.1 + 0.6 + 1.5) / 3)


def test_parts_add_up_where_clocks_of_machines_differ():
    """A worker whose clock is ahead says that it computed for longer than the round took."""
    ahead = [message(0, 1.0, -0.5, 3.0)]
    found = spent(ahead, computed(ahead, codes.uncoded(1)), 1.0, 1.1, 0.0, busy=(), lost=())
    assert sum(vars(found["split"]).values()) == pytest.approx(found["wall"]) == 1.1
    assert min(vars(found["split"]).values()) >= 0 and found["idle"] >= 0
    nothing = spent([], computed([], codes.uncoded(2)), 2.0, 2.0, 0.0, busy=(0,), lost={0, 1})
    assert nothing["split"] == Split(slack=2.0) and nothing["idle"] == 0


def test_wall_clock_and_wait_on_live_workers():
    """What the program does between two gradients is outside the round, and in the wall-clock time."""
    code = codes.correlated_mmc(3, load=3, order=2)
    began = time.monotonic()
    with Master(code, Chaos(Local(Constant(3)), latency=LATENCY, rng=0)) as master:
        steps = []
        for pause in (0.0, 0.2, 0.0):
            time.sleep(pause)
            steps.append(master.gradient(np.zeros(8)))
    assert sum(step.wall for step in steps) <= time.monotonic() - began
    for step, pause in zip(steps, (0.0, 0.2, 0.0), strict=True):
        assert parts(step) == pytest.approx(step.wall) and step.wall >= step.wait + pause > 0.01
        assert step.split.outside >= pause and min(vars(step.split).values()) >= 0
        assert pause <= step.idle <= step.wall
        assert {*step.used, *step.late} == {0, 1, 2}


def test_on_a_sampled_clock_only_the_wait_takes_time():
    problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    with Master(codes.cyclic_repetition(4, s=1), Virtual(problem, LATENCY, rng=0)) as master:
        first, second = (master.gradient(np.zeros(4)) for _ in range(2))
    for step in (first, second):
        assert step.wall == step.wait == pytest.approx(parts(step)) and step.split.outside == 0
        assert len(step.used) == 3 and len(step.late) == 1 and step.messages == 3
    assert 0 < first.idle < first.wall


def test_the_record_is_json_and_has_one_name_for_each_thing():
    problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    with Master(codes.cyclic_repetition(4, s=1), Virtual(problem, LATENCY, rng=0)) as master:
        record = json.loads(json.dumps(master.gradient(np.zeros(4)).to_dict()))
    assert record.keys() == Step(step=0, wall=0.0, wait=0.0, exact=True).to_dict().keys()
    assert record["split"].keys() == vars(Split()).keys() and not {"tracks", "got", "time", "waited", "dead"} & record.keys()


def test_messages_that_vanish_in_the_first_round_are_asked_for_again():
    """A patient master that waits does not need to know the usual time of a round for that."""
    problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    engine = engines.Chaos(Virtual(problem, LATENCY, rng=0), drop=0.6, rng=0)
    with Master(codes.uncoded(4), engine, patience=10.0) as master:
        steps = [master.gradient(np.zeros(4)) for _ in range(3)]
    assert all(step.exact for step in steps) and steps[0].wait >= 1.0
