"""Messages of a device on Ray and MPI: they come to their slots, or to memory of a worker. A CPU stands for the device."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unstraggle import Invalid, codes
from unstraggle.engines import MPI, Message
from unstraggle.engines.depot import Depot
from unstraggle.engines.dock import Dock
from unstraggle.engines.mooring import moored
from unstraggle.problems import LeastSquares, Moors
from unstraggle.runtime.instructions import Tell
from unstraggle.runtime.kept import Kept
from unstraggle.runtime.serve import Abandoned, Job, run, share_of
from unstraggle.runtime.shift import Shift

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from unstraggle.torch import pinned  # noqa: E402
from unstraggle.torch.berths import Berths  # noqa: E402

from ..torch_models import coded, params_of, table  # noqa: E402
from .test_commons import needs_memory  # noqa: E402

KIND = np.dtype("f4")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def wide(width: int = 2000) -> nn.Module:
    """Messages of more than 64 KB, so that they stand in slots."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 3), nn.Linear(3, 3))


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "PIECE", 1 << 13)


class Bench:
    """A worker's end and the master's, in one process. shares: whether they are on one host."""

    def __init__(
        self, scheme: str, shares: bool, device: str = "cpu", worker: int = 0, kind: str = "pinned", width: int = 2000
    ) -> None:
        self.run = coded(wide(width), nn.CrossEntropyLoss(), table(), scheme=scheme, device=device)
        problem, self.code = self.run.problem, self.run.code
        self.params = params_of(self.run)
        self.params.flags.writeable = False
        self.depot, self.dock = Depot(self.code, problem.dim, KIND), Dock(worker, problem.dim, KIND)
        share = share_of(problem, self.code, worker, checked=not shares)
        share = pickle.loads(pickle.dumps(replace(share, moored=moored(share.problem, self.code, kind))))
        if shares:
            self.dock.take_offer(self.depot.offer(worker))
        self.share = self.dock.moor(share) if share.moored else share
        assert self.dock.shares is shares
        self.problem: Any = self.share.problem
        self.problem._open()
        replica = self.problem.replica
        replica.apart = True  # as on a device: gradients stay apart, and leave
        replica.zeros = lambda: torch.zeros_like(replica.flat)  # and sums are tensors
        self.sent: dict[int, Any] = {}

    def job(self, round: int, step: int = 0, pull: bool = False) -> Job:
        return Job(round, step, self.params[:], time.monotonic(), pull=pull)

    def send(self, job: Job, message: Any, payload: Any, checksum: int, times: Any) -> None:
        if not self.dock.shares:
            self.sent[message.index] = np.frombuffer(payload, KIND).copy()
            return
        slot, begin = self.dock._slots[message.index]
        if self.dock._whole.get(message.index) != job.round:
            assert payload.ctypes.data == slot.ctypes.data + begin, "copied on the host"
        self.dock.put(job.round, message, payload, checksum, times)
        self.sent[message.index] = self.payload(message.index, job.round)

    def payload(self, index: int, round: int) -> Any:
        found: Message = self.depot.message(self.share.worker, index, round, 0, 0.0)
        return found.payload.view(KIND).copy()

    def compute(self, job: Job, send: Any = None, stopped: Any = lambda: False) -> dict[int, Any]:
        self.sent = {}
        begin = (lambda index: self.dock.begin(job.round, index, KIND)) if self.dock.begins else None
        run(self.share, job, send or (lambda *sent: self.send(job, *sent)), stopped, lambda until: None, begin)
        return self.sent

    def expected(self, step: int = 0) -> dict[int, Any]:
        """The messages of the same share without any of this."""
        problem = self.run.problem
        parts = {
            part: np.asarray(torch.as_tensor(problem.grad(self.params, part, step=step)).cpu()) for part in range(problem.k)
        }
        return {
            message.index: sum(coef.real * parts[part] for (part, _), coef in zip(message.pairs, message.coef, strict=True))
            for message in self.share.program.messages
        }

    def agree(self, found: dict[int, Any], step: int = 0) -> bool:
        wanted = self.expected(step)
        return found.keys() == wanted.keys() and all(np.allclose(found[m], wanted[m], rtol=1e-4, atol=1e-6) for m in wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("shares", [True, False])
def test_time_of_a_round_beside_that_of_bytes(shares: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown, and no more: how long it takes is not for a test to say."""
    seconds = {}
    for kind in ("pinned", "host"):
        bench = Bench("uncoded(2)", shares, "cuda", kind=kind, width=2_000_000)
        for round in range(6):
            job = bench.job(round)
            bench.compute(job, send=lambda message, payload, *_: None)
            seconds[kind] = job.now()
    with capsys.disabled():
        print(f"\npinned over host, shared {shares}: {seconds['pinned'] / seconds['host']:.2f}")


SCHEMES = ["uncoded(2)", "cyclic_repetition(3, s=1)", "correlated_mmc(3, load=2, order=2)"]


@needs_memory
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_messages_of_a_device_are_those_of_any_other(scheme: str, shares: bool, device: str) -> None:
    bench = Bench(scheme, shares, device)
    for round in range(3):
        assert bench.agree(bench.compute(bench.job(round, step=round)), step=round)


@needs_memory
@pytest.mark.parametrize("shares", [True, False])
def test_a_message_begins_to_leave_in_the_backward_pass(shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    leave = Berths.leave
    monkeypatch.setattr(Berths, "leave", lambda berths, total, upto: (left.append(upto), leave(berths, total, upto))[1])
    bench = Bench("uncoded(2)", shares)
    assert bench.agree(bench.compute(bench.job(0)))
    assert left[0] == 0 and left[1] > 0 and left == sorted(left)


@needs_memory
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shares", [True, False])
def test_a_message_that_was_left_in_the_middle_spoils_none_that_follows(shares: bool, device: str) -> None:
    bench = Bench("cyclic_repetition(3, s=1)", shares, device)
    assert bench.agree(bench.compute(bench.job(0)))
    gone = iter([*[False] * 9, *[True] * 99])
    assert bench.compute(bench.job(1, step=1), stopped=lambda: next(gone)) == {}
    assert bench.agree(bench.compute(bench.job(2, step=2)), step=2)


@needs_memory
def test_what_the_master_may_be_reading_stays_when_a_worker_is_asked_again() -> None:
    bench = Bench("uncoded(2)", shares=True)
    (first,) = bench.compute(bench.job(0)).values()
    bench.params = bench.params + np.float32(0.5)
    (again,) = bench.compute(bench.job(0)).values()
    assert np.array_equal(first, again)
    assert not bench.agree({0: again}) and bench.agree(bench.compute(bench.job(1)))


def test_what_is_kept_until_it_is_asked_for_is_no_view_of_a_room() -> None:
    bench, kept = Bench("uncoded(2)", shares=False), Kept()
    bench.compute(bench.job(0, pull=True), send=lambda *sent: kept.put(0, *sent))
    bench.dock._rooms[0][:] = 255  # the next round comes
    found = kept.asked(Tell(0, 0, ticket=1, message=0), 0)
    assert found is not None and bench.agree({0: np.frombuffer(found.payload, KIND)})


@needs_memory
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shares", [True, False])
def test_sums_on_request(shares: bool, device: str) -> None:
    """While the worker is at the next task, and once more, with more in it."""
    bench = Bench("work_conserving(2, load=2, pieces=2)", shares, device)
    sent: list[Any] = []

    def answer(message: Any, payload: Any, checksum: int, times: Any, ticket: int) -> None:
        assert payload.ctypes.data == bench.dock._rooms[message.index].ctypes.data, "copied on the host"
        if shares:
            bench.dock.put(4, message, payload, checksum, times, again=True)
        sent.append(bench.payload(message.index, 4) if shares else np.frombuffer(payload, KIND).copy())

    program = bench.share.program
    rows, parts = program.handed, [part for part, _ in program.tasks]
    shift = Shift(bench.share, bench.job(4), lambda task, epoch: None, answer)
    shift.begin()
    wanted: Any = 0
    for count, (row, part) in enumerate(zip(rows[:2], parts[:2], strict=True), 1):
        shift.hear(Tell(0, 4, task=row))
        shift.do()
        shift.hear(Tell(0, 4, done=row, counts=True))
        shift.hear(Tell(0, 4, ticket=count, count=count))
        wanted = wanted + np.asarray(torch.as_tensor(bench.run.problem.grad(bench.params, part)).cpu())
        assert np.allclose(sent[-1], wanted, rtol=1e-4, atol=1e-6)
    assert len(sent) == 2


@needs_memory
def test_a_worker_that_is_started_again_has_rooms_of_its_own() -> None:
    bench = Bench("uncoded(2)", shares=True)
    again = pickle.loads(pickle.dumps(replace(bench.share, land=None)))
    bench.compute(bench.job(0))
    bench.dock = Dock(0, bench.problem.dim, KIND)
    assert again.problem.replica.leave is None and not again.problem.replica.staged, "what is of a process went along"
    bench.dock.take_offer(bench.depot.offer(0))
    bench.share = bench.dock.moor(again)
    assert bench.agree(bench.compute(bench.job(1)))


def test_a_way_is_asked_for_left_out_or_refused() -> None:
    bench = Bench("uncoded(2)", shares=False)
    problem, code = bench.run.problem, bench.code
    assert isinstance(problem, Moors) and moored(problem, code, "pinned")
    assert not moored(problem, code, "auto") and not moored(problem, code, "host"), "there is no device"
    there = Bench("uncoded(2)", shares=False).run.problem
    there.how = replace(there.how, devices=("cuda:0",))
    assert moored(there, code, "auto") and not moored(there, code, "host")
    assert not moored(there, codes.quantize(codes.uncoded(2), bits=8), "auto")
    with pytest.raises(Invalid, match="quantises"):
        moored(problem, codes.quantize(codes.uncoded(2), bits=8), "pinned")
    plain = LeastSquares.split(np.eye(2), np.ones(2), parts=2)
    assert not moored(plain, code, "auto")
    with pytest.raises(Invalid, match="for problems on devices, but got LeastSquares"):
        moored(plain, code, "pinned")
    with pytest.raises(Invalid, match="MPI's way is one of auto, pinned, host, but got 'ipc'"):
        MPI(plain, way="ipc")


def test_a_worker_without_its_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench("uncoded(2)", shares=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    there = bench.share.problem
    there.replica._wanted = "cuda:0"
    with pytest.raises(Invalid, match="sees no GPU"):
        there.moor({0: np.zeros(4 * there.dim, np.uint8)})


def test_abandoned_is_no_error_of_a_message() -> None:
    """A task that stops inside: nothing is sent, and the room is fit for the next round."""
    bench = Bench("uncoded(2)", shares=False)
    accumulate = bench.problem.accumulate

    def leaves(*given: Any) -> Any:
        accumulate(*given)
        raise Abandoned

    bench.problem.accumulate = leaves
    assert bench.compute(bench.job(0)) == {}
    bench.problem.accumulate = accumulate
    assert bench.agree(bench.compute(bench.job(1)))


def test_mpi_tells_its_workers_and_they_make_ready() -> None:
    from unstraggle.engines.mpi_worker import Worker

    bench = Bench("uncoded(2)", shares=False)
    for way in ("pinned", "auto"):
        engine: Any = MPI(bench.run.problem, way=way)
        engine._code, engine._depot = bench.code, bench.depot
        share, *_ = pickle.loads(engine._set_up(1))
        worker: Any = Worker(None, ())  # type: ignore[arg-type]
        ready = worker._at_dock(share, b"", "another host")
        assert (ready.land is not None) is worker._dock.begins is share.moored is (way == "pinned")


def test_ray_tells_its_workers() -> None:
    pytest.importorskip("ray")
    from unstraggle.engines import Ray

    class Actor:
        """What a worker of Ray is asked."""

        def __init__(self) -> None:
            self.prepare = self

        def options(self, **options: Any) -> Any:
            return self

        def remote(self, *given: Any) -> Any:
            return given

    bench = Bench("uncoded(2)", shares=False)
    for way in ("pinned", "auto"):
        engine: Any = Ray(bench.run.problem, way=way)
        engine._code, engine._dtype, engine._actors = bench.code, KIND, [Actor(), Actor()]
        assert engine._prepare(1)[-1] is (way == "pinned")
    with pytest.raises(Invalid, match="Ray's way is one of"):
        Ray(bench.run.problem, way="wire")
