"""The worker loop: order of tasks, encoding, memory, and stopping between tasks."""

import numpy as np
import pytest

from unstraggle import Invalid, codes, work
from unstraggle.blocks import block_slices
from unstraggle.code import combine


def run(program, stopped=lambda: False):
    log = []
    work(
        program,
        lambda part, block: log.append(("task", part, block)) or float(10**part),
        lambda message, payload: log.append(("send", message.index, payload)),
        stopped,
    )
    return log


def test_messages_leave_as_soon_as_their_tasks_are_done():
    code = codes.correlated_mmc(6, load=3, order=2)
    log = run(code.program(5))
    assert [entry[:2] for entry in log] == [("task", 5), ("task", 0), ("send", 10), ("task", 1), ("send", 11)]
    assert log[2][2] == pytest.approx(100_001) and log[4][2] == pytest.approx(11)


def test_it_stops_between_tasks():
    asked = []
    log = run(codes.uncoded_mmc(4, load=3).program(1), stopped=lambda: len(asked) >= 2 or asked.append(1))
    assert [entry[0] for entry in log] == ["task", "send", "task", "send"]


def test_partial_gradients_are_dropped_after_their_last_use():
    class Counted:
        alive = 0

        def __init__(self):
            Counted.alive += 1

        def __del__(self):
            Counted.alive -= 1

        def __rmul__(self, factor):
            return factor

    most = []
    program = codes.correlated_mmc(8, load=6, order=2).program(0)
    work(program, lambda part, block: Counted(), lambda message, payload: most.append(Counted.alive))
    assert max(most) == 2 and Counted.alive == 0


def test_blocks_are_computed_in_order():
    code = codes.blocks([1, 1], codes.uncoded(3), codes.cyclic_repetition(3, s=1))
    kinds = [entry[:3] for entry in run(code.program(2)) if entry[0] == "task"]
    assert kinds == [("task", 2, 0), ("task", 2, 1), ("task", 0, 1)]


def test_programs_are_small_and_only_for_workers_that_exist():
    import pickle

    code = codes.cluster(codes.correlated_mmc(10, load=10, order=6), times=4)
    assert len(pickle.dumps(code.program(17))) < 3000
    with pytest.raises(Invalid, match="0 <= worker < n"):
        code.program(40)


def test_combine_puts_blocks_in_their_place():
    code = codes.blocks([1, 3], codes.uncoded(2), codes.fractional_repetition(2, s=1))
    payloads = {0: np.array([1.0]), 1: np.array([2.0]), 3: np.array([7.0, 8.0, 9.0])}
    got = np.isin(np.arange(4), list(payloads))
    assert combine(code, code.decoder.weights(got)[0], payloads, 4) == pytest.approx([3.0, 7.0, 8.0, 9.0])


def test_block_slices_cover_every_coordinate_once():
    for dim in (1, 7, 100):
        slices = block_slices(dim, (0.2, 0.3, 0.05, 0.45))
        assert np.concatenate([np.arange(dim)[s] for s in slices]).tolist() == list(range(dim))
