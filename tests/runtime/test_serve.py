"""What a worker refuses to send."""

from dataclasses import replace

import numpy as np
import pytest

from unstraggle import Invalid, Master, WorkerFailed, codes
from unstraggle.engines import Abandoned, Local, Tell, Virtual
from unstraggle.latency import Exponential
from unstraggle.runtime.serve import Job, run, share_of
from unstraggle.runtime.shift import Shift, Shifts

from ..problems import Adds, Gives

WORDS = {
    "scalar": "gave shape () of",
    "long": "gave shape (9,) of float64",
    "table": "gave shape (8, 1) of float64",
    "complex": "gave shape (8,) of complex128",
    "list": "gave shape (8,) of list",
}


def on_virtual(problem):
    return Virtual(problem, Exponential(rate=1.0), rng=0)


@pytest.mark.parametrize("engine, what", [(Local, "long"), *((on_virtual, what) for what in WORDS)])
def test_partial_gradients_of_another_shape_or_kind_are_errors(engine, what):
    """A scalar was broadcast, and an imaginary part dropped, and the gradient called exact."""
    with Master(codes.uncoded(2), engine(Gives(2, what=what))) as master, pytest.raises(WorkerFailed) as raised:
        master.gradient(np.zeros(8))
    assert "Gives.grad must give 8 real numbers" in str(raised.value) and WORDS[what] in str(raised.value)


@pytest.mark.parametrize("problem", [Gives, Adds])
@pytest.mark.parametrize("what", WORDS)
def test_a_worker_sends_none_of_them(problem, what):
    share = share_of(problem(2, what=what), codes.uncoded(2), 0)
    with pytest.raises(Invalid, match="must give 8 real numbers"):
        run(share, Job(0, 0, np.zeros(8), 0.0), lambda *sent: pytest.fail("it was sent"), lambda: False, lambda until: None)


def test_nor_complex_ones_where_messages_are_complex():
    share = replace(share_of(Gives(2, what="complex"), codes.uncoded(2), 0), dtype=np.dtype(np.complex128))
    with pytest.raises(Invalid, match="must give 8 real numbers"):
        run(share, Job(0, 0, np.zeros(8), 0.0), lambda *sent: pytest.fail("it was sent"), lambda: False, lambda until: None)


class Looks(Gives):
    """Two looks in every task."""

    stopped = None

    def heed(self, stopped):
        self.stopped = stopped

    def grad(self, params, part, where=slice(None), step=0):
        for _ in range(2):
            if self.stopped():
                raise Abandoned
        return np.ones(8)


def after(looks):
    """Whether to stop: yes, from so many looks on."""
    seen = iter(range(100))
    return lambda: next(seen) >= looks


def served(code, stopped):
    sent = []
    share = share_of(Looks(code.k), code, 0)
    run(share, Job(0, 0, np.zeros(8), 0.0), lambda message, *_: sent.append(message.index), stopped, lambda until: None)
    return sent


def test_a_problem_that_stops_inside_a_task_sends_no_more():
    """Each task is looked at once before it and twice inside."""
    code = codes.uncoded_mmc(3, load=3)
    answers = [served(code, after(looks)) for looks in range(10)]
    assert [len(sent) for sent in answers] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_a_shift_that_stops_inside_a_task_is_free():
    """It says so, although there is no result: the round that wanted it is over."""
    code, said, over = codes.work_conserving(2, load=2, pieces=1), [], []
    share = share_of(Looks(code.k), code, 0)
    shift = Shift(share, Job(0, 0, np.zeros(8), 0.0), lambda *done: said.append(done), lambda *sent: pytest.fail("it was sent"))
    for task in share.program.handed:
        shift.hear(Tell(0, 0, task=task))
    shift.work(lambda: bool(over) or (len(said) == 1 and over.append(1)))
    assert said == [(task, 0) for task in share.program.handed] and shift.next == -1


@pytest.mark.parametrize("how", ["over before it began", "told when it had left", "never taken up"])
def test_a_task_that_was_never_begun_is_said_to_be_done(how):
    """The master held its worker for busy ever after, and waited for ever where nobody else could do its part."""
    code, said = codes.work_conserving(2, load=2, pieces=1), []
    share, shifts = share_of(Looks(code.k), code, 0), Shifts()
    jobs = [Job(number, number, np.zeros(8), 0.0) for number in (0, 1)]
    shift, following = (Shift(share, job, lambda *done: said.append(done), lambda *sent: pytest.fail("sent")) for job in jobs)
    task = share.program.handed[0]
    shifts.put(shift)
    if how == "told when it had left":
        shifts.take().work(lambda: True)
    shifts.hear(Tell(0, 0, task=task))
    if how == "over before it began":
        shifts.take().work(lambda: True)
    shifts.put(following)
    assert said == [(task, 0)]
    assert shifts.take() is following and following.next == -1
