"""Workers that are forked from a process of their engine: as good as new ones, and they end with the master."""

import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from unstraggle import Count, Master, NotRecovered, UnstraggleError, codes
from unstraggle.engines import Failed, Joined, Local
from unstraggle.engines.local_worker import FAILED, NOTE, READY
from unstraggle.engines.nursery import Nursery
from unstraggle.engines.nursery_server import RECORD, REFUSED, Server

from ..problems import Asks, Constant, ReadyOnce, SlowToPickle
from .left_behind import command_line, nothing_left_behind
from .scenarios import run, until
from .test_engine_local import SCRIPT

__all__ = ["nothing_left_behind"]
pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def nurseries():
    return [child for child in psutil.Process().children() if "nursery_server" in " ".join(command_line(child))]


def ask(**options):
    """(workers, 3) what each worker finds."""
    with Master(codes.uncoded(2), Local(Asks(2), **options)) as master:
        return run(master, dim=6).gradient.reshape(2, 3)


def test_workers_of_one_engine_are_siblings_and_end_with_it():
    with Master(codes.uncoded(3), Local(Constant(3))) as master:
        (nursery,) = nurseries()
        assert {psutil.Process(master.engine.pid(worker)).ppid() for worker in range(3)} == {nursery.pid}
        run(master)
    assert not nursery.is_running()


def test_every_engine_has_the_environment_of_its_start(monkeypatch):
    assert ask()[:, :2].tolist() == [[1, 0], [1, 0]]
    monkeypatch.setenv("ASKED", "7")
    assert ask(threads=2)[:, :2].tolist() == [[2, 7], [2, 7]]


def test_forks_draw_different_numbers():
    found = [*ask()[:, 2], *ask()[:, 2]]
    assert len(set(found)) == 4


def test_a_killed_nursery_is_replaced():
    """Its workers end, for nobody would know when they do; those of the next one go on."""
    with Master(codes.uncoded(3), Local(Constant(3))) as master:
        before = run(master).gradient
        (nursery,) = nurseries()
        nursery.kill()
        until(lambda: master.engine.pid(0) is None)
        again = run(master)
        np.testing.assert_array_equal(again.gradient, before)
        assert nurseries() and nurseries() != [nursery]


def test_a_nursery_that_cannot_begin_names_the_way_out(capfd):
    nursery = Nursery({}, ["no_such_module"])
    with pytest.raises(UnstraggleError, match=r'exit code 1\).*start_method="spawn"'):
        nursery.start(None)
    assert "no_such_module" in capfd.readouterr().err


def test_the_exit_code_of_a_worker(capfd):
    """By channels that are none, and by a signal."""
    nursery = Nursery({})
    first, second = nursery.start(None), nursery.start(None)
    second.kill()
    assert second.join() and second.exitcode == -signal.SIGKILL
    assert first.join() and first.exitcode == 1
    for child in (first, second):
        assert not child.is_alive()
        child.kill()
        child.close()
        child.close()
    nursery.close()
    assert "AttributeError" in capfd.readouterr().err


def test_a_stopped_nursery_does_not_stall_a_round_that_others_decode():
    engine = Local(Constant(3))
    with Master(codes.cyclic_repetition(3, s=1), engine) as master:
        run(master)
        (nursery,) = nurseries()
        os.kill(nursery.pid, signal.SIGSTOP)
        os.kill(engine.pid(1), signal.SIGKILL)
        until(lambda: run(master).lost == (1,))
        for _ in range(3):
            np.testing.assert_allclose(run(master).gradient, 6.0)
        os.kill(nursery.pid, signal.SIGCONT)
        until(lambda: not run(master, delays=np.full(3, 0.05)).lost)


def test_an_engine_with_a_stopped_nursery_is_closed():
    engine = Local(Constant(2))
    with Master(codes.ignore_stragglers(2), engine, Count(1)) as master:
        run(master)
        os.kill(nurseries()[0].pid, signal.SIGSTOP)
        os.kill(engine.pid(1), signal.SIGKILL)
        until(lambda: run(master).lost == (1,))


def test_a_share_that_takes_long_to_pickle_does_not_stall_a_round(tmp_path):
    """While a worker is started again, the others go on."""
    slow = tmp_path / "slow"
    engine = Local(SlowToPickle(3, file=str(slow)))
    with Master(codes.cyclic_repetition(3, s=1), engine) as master:
        run(master)
        slow.touch()
        os.kill(engine.pid(1), signal.SIGKILL)
        until(lambda: run(master).lost == (1,))
        rounds = 0
        while run(master, delays=np.array([0.05, 0.1, 0.05])).lost:
            rounds += 1
        assert rounds > 5, "rounds waited for the pickling"


def test_too_many_open_files_cost_one_worker_and_not_all(caplog):
    """The worker that cannot be started is tried again; those that are well stay what they are."""
    engine = Local(Constant(3), restarts=10)
    with Master(codes.cyclic_repetition(3, s=1), engine) as master:
        run(master)
        well = engine.pid(0), engine.pid(2)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        os.kill(engine.pid(1), signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            until(lambda: run(master, delays=np.full(3, 0.05)).lost == (1,) and "could not be started again" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: not run(master, delays=np.full(3, 0.05)).lost)
        assert (engine.pid(0), engine.pid(2)) == well


def test_a_fork_that_fails_is_refused_and_the_next_one_is_not(monkeypatch):
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = Server(theirs)
    monkeypatch.setattr(os, "fork", lambda: (_ for _ in ()).throw(OSError(errno.EAGAIN, "no more processes")))
    assert not server._answer(7, [], whole=True)
    assert RECORD.unpack(mine.recv(RECORD.size)) == (REFUSED, 7, errno.EAGAIN)
    assert not server._answer(8, [], whole=False)
    assert RECORD.unpack(mine.recv(RECORD.size)) == (REFUSED, 8, errno.EMFILE)
    mine.close()
    theirs.close()


def test_who_never_gets_ready_again_is_given_up(tmp_path):
    engine = Local(ReadyOnce(2, folder=str(tmp_path)))
    with Master(codes.uncoded(2), engine) as master:
        run(master)
        engine._roster._start_within = 1.0
        os.kill(engine.pid(1), signal.SIGKILL)
        with pytest.raises(NotRecovered, match=r"workers \[1\] are lost"):
            run(master)


def test_ready_behind_an_error_in_one_read_is_not_lost():
    """The notes of all workers come by one pipe, and are read together."""
    engine = Local(Constant(2))
    with Master(codes.uncoded(2), engine) as master:
        run(master)
        for kind, worker, number in ((FAILED, 0, 5), (READY, 1, -1), (FAILED, 0, 5)):
            os.write(engine._notes, NOTE.pack(kind, worker, number, 0, 0))
        events = engine.next(1.0)
        assert [(type(event), event.worker) for event in events] == [(Failed, 0), (Joined, 1)]
        np.testing.assert_allclose(run(master).gradient, 3.0)


def test_an_order_that_a_full_pipe_did_not_take_comes_later():
    """A worker that was stopped for thousands of rounds takes part in the present one when it goes on."""
    engine = Local(Constant(2), heartbeat=1.0)
    with Master(codes.ignore_stragglers(2), engine, Count(1)) as master:
        run(master)
        pid = engine.pid(1)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(2200):
            run(master)
        assert engine._seats[1].waiting
        os.kill(pid, signal.SIGCONT)
        assert run(master, delays=np.array([60.0, 0.0])).got.tolist() == [False, True]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("victims", ["master", "master and nursery"])
def test_workers_in_the_middle_of_c_code_end_with_the_master(method, victims, tmp_path):
    """They hold the interpreter lock for a minute, so that no thread of theirs can look after anything."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("Constant(3,", "Holds(3,").replace("import Constant", "import Holds"))
    script.write_text(script.read_text().replace("[1])))", f"[1])), start_method={method!r})"))
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(script), "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as master:
        pids = [int(pid) for pid in re.findall(r"\d+", master.stdout.readline())]
        time.sleep(0.5)
        nursery = [child for child in psutil.Process(master.pid).children() if "nursery" in " ".join(child.cmdline())]
        master.kill()
        for child in nursery if victims != "master" else ():
            child.kill()
        until(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_stopped_worker_ends_with_the_master_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(script), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as master:
        pids = [int(pid) for pid in re.findall(r"\d+", master.stdout.readline())]
        os.kill(pids[0], signal.SIGSTOP)
        master.kill()
        until(lambda: not any(map(psutil.pid_exists, pids)))


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("x = 1", True),
        ("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", False),
        ("import os; file = os.open('/dev/null', 0)", False),
        ("import subprocess; child = subprocess.Popen(['sleep', '600'])", False),
        ("raise ImportError('not here')", False),
    ],
)
def test_what_workers_need_is_imported_before_forks_unless_it_leaves_something_open(text, safe, tmp_path, capfd):
    """Else the nursery begins again without it, and forks all the same."""
    (tmp_path / "needed.py").write_text(f"{text}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        nursery = Nursery({})
        child = nursery.start(None, ["needed"])
        (server,) = nurseries()
        assert ("needed" in server.cmdline()) is safe
        for left in server.children():
            left.kill()
        assert child.join()
        child.close()
        nursery.close()
    capfd.readouterr()
