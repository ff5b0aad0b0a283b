"""The worker loop: order of tasks, encoding, memory, and stopping between tasks."""

import numpy as np
import pytest

from unstraggle import Invalid, Program, codes, parse_code, work
from unstraggle.blocks import block_slices
from unstraggle.runtime.worker import encode
from unstraggle.scheme.code import combine
from unstraggle.scheme.program import Outgoing

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example


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


class Vector:
    """Numbers that count how many of them are alive, and the most that ever were."""

    alive = most = 0

    def __init__(self, values):
        self.values = values
        Vector.alive += 1
        Vector.most = max(Vector.most, Vector.alive)

    def __del__(self):
        Vector.alive -= 1

    def __rmul__(self, factor):
        return Vector(factor * self.values)

    def __add__(self, other):
        return Vector(self.values + other.values)

    def __iadd__(self, other):
        self.values = self.values + other.values
        return self


def partial(part, block):
    return np.random.default_rng((part, block)).standard_normal(3)


def counted(run):
    """Messages and the most vectors alive while they are made."""
    sent = {}
    Vector.alive = Vector.most = 0
    run(lambda part, block: Vector(partial(part, block)), lambda message, payload: sent.update({message.index: payload.values}))
    assert Vector.alive == 0
    return sent, Vector.most


def kept(program, grad, send):
    """The plain form of `work`: every partial gradient waits for its last use."""
    partials = {}
    for step, task in enumerate(program.tasks, 1):
        partials[task] = grad(*task)
        for message in program.due[step - 1]:
            send(message, encode(message, partials))
        partials = {key: value for key, value in partials.items() if program.last_use.get(key, 0) > step}


@pytest.mark.parametrize("expression", EXAMPLES + APPROXIMATE_EXAMPLES)
def test_messages_are_the_same_as_without_folding_and_need_no_more_memory(expression):
    code = example(expression)
    for worker in range(code.n):
        program = code.program(worker)
        sent, most = counted(lambda grad, send, program=program: work(program, grad, send))
        plain, plain_most = counted(lambda grad, send, program=program: kept(program, grad, send))
        assert sent.keys() == plain.keys()
        for index, values in plain.items():
            np.testing.assert_allclose(sent[index], values, rtol=1e-9, atol=1e-9 * np.abs(values).max())
        assert most <= plain_most
        assert most <= min(program.waiting) + 2


@pytest.mark.parametrize(
    "expression", ["cyclic_repetition(12, s=11)", "fractional_repetition(12, s=3)", "reed_solomon(8, s=3, field='real')"]
)
def test_codes_with_one_message_need_one_vector_where_the_problem_accumulates(expression):
    program, totals, sent, plain = parse_code(expression).program(1), [], {}, {}

    def accumulate(part, block, coef, total):
        totals.extend([] if total is not None else [np.zeros(3)])
        totals[-1] += coef * partial(part, block)
        return totals[-1]

    work(
        program,
        lambda part, block: pytest.fail("a partial gradient was made"),
        lambda m, x: sent.update({m.index: x}),
        accumulate=accumulate,
    )
    kept(program, partial, lambda message, payload: plain.update({message.index: payload}))
    assert len(totals) == len(program.messages) == len(sent) == 1
    for index, values in plain.items():
        np.testing.assert_allclose(sent[index], values, rtol=1e-9, atol=1e-9)


def test_multi_message_codes_hold_what_their_table_needs():
    """Sums where many partial gradients go into few messages, partial gradients where few go into many."""
    assert codes.uncorrelated_mmc(10, load=10, orders=[6, 8, 10]).program(0).waiting == (3, 9)
    few = Program(
        0, ((0, 0), (1, 0), (2, 0), (3, 0)), tuple(Outgoing(m, m + 2, 0, ((0, 0), (m + 1, 0)), (1.0, 2.0)) for m in range(3))
    )
    assert few.waiting == (3, 1) and not few.folds
    sent, most = counted(lambda grad, send: work(few, grad, send))
    assert most <= 4
    np.testing.assert_allclose(sent[2], partial(0, 0) + 2 * partial(3, 0))


def test_the_arrays_of_the_problem_are_not_changed():
    mine = np.ones(3)
    sent = []
    work(
        example("cyclic_repetition(9, s=4)").program(0), lambda part, block: mine, lambda message, payload: sent.append(payload)
    )
    assert mine.tolist() == [1, 1, 1] and sent[0] is not mine


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
