"""Mate: sums by two threads are those of NumPy, whoever makes them, however they lie, and whatever else goes on."""

import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from unstraggle.runtime import mate, mate_kernel
from unstraggle.runtime.sums import SHORT, Sum, Sums, _by_numpy, copies
from unstraggle.runtime.sums_kernel import FEW, PIECE

HEAD = 3


@pytest.fixture
def busy(monkeypatch):
    """A mate even for short passes, where this machine has a processor for it."""
    monkeypatch.setattr(mate, "WORTH", 0)
    if mate.cores() == 1:
        pytest.skip("one processor: there is no mate")


def drawn(rng, length, count, kind, fresh=True, under=-1):
    """A sum of vectors that begin anywhere in a cache line."""

    def vector():
        skip = int(rng.integers(0, 20))
        return (1 + rng.random(length + skip)).astype(kind)[skip:]

    out, factor = vector(), float(rng.random())
    return Sum(out, (1 + rng.random(count)).tolist(), [vector() for _ in range(count)], fresh, factor, HEAD, under)


def expected(one):
    out = one.out.copy()
    _by_numpy(one._replace(out=out))
    return out


@pytest.mark.parametrize("past", [True, False], ids=["past the caches", "through them"])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_sums_of_any_lengths_are_made_in_one_pass(busy, monkeypatch, kind, past):
    monkeypatch.setattr(mate, "CACHED", 0 if past else 1 << 40)
    rng = np.random.default_rng(0)
    lengths = [1, 2, 15, 16, 17, 63, 64, 65, PIECE - 1, PIECE, PIECE + 1, PIECE + 31, PIECE + 32, 3 * PIECE + 5]
    for count in (1, 2, 4, FEW, FEW + 1, 2 * FEW + 3):
        sums = [drawn(rng, n, count, kind, fresh) for n in lengths for fresh in (True, False)]
        wanted = [expected(one) for one in sums]
        assert Sums(sums).begin().fine()
        for one, want in zip(sums, wanted, strict=True):
            np.testing.assert_allclose(one.out, want, rtol=3e-7 if kind == "f4" else 3e-15)


@pytest.mark.parametrize("count", [1, 2, FEW + 1])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_a_factor_is_divided_by_what_the_sum_is_there(busy, kind, count):
    one = drawn(np.random.default_rng(1), 2 * PIECE + 7, count, kind, under=1)
    want = expected(one)
    assert Sums([one]).begin().fine()
    np.testing.assert_allclose(one.out, want, rtol=3e-7 if kind == "f4" else 3e-15)
    for vector in one.vectors:
        vector[1] = 0
    assert not Sums([one]).begin().fine()


@pytest.mark.parametrize("count", [1, 3, FEW + 2])
def test_who_makes_a_sum_does_not_change_its_bits(busy, monkeypatch, count):
    one = drawn(np.random.default_rng(2), 5 * PIECE + 11, count, "f4")
    found = []
    for cached, begin in ((0, mate.begin), (1 << 40, mate.begin), (0, mate.alone)):
        monkeypatch.setattr(mate, "CACHED", cached)
        begin(mate.Table([one]))()
        found.append(one.out.tobytes())
    assert len(set(found)) == 1


def test_sums_that_were_prepared_are_made_of_what_is_there_then(busy):
    rng = np.random.default_rng(3)
    one = drawn(rng, PIECE + 3, 2, "f4")
    prepared = Sums([one])
    for _ in range(3):
        one.vectors[0][:] = rng.random(len(one.out))
        want = expected(one)
        assert prepared.begin().fine()
        np.testing.assert_allclose(one.out, want, rtol=3e-7)


def test_a_copy_has_the_same_bits(busy):
    given = np.random.default_rng(4).standard_normal(SHORT + 21).astype("f4")
    given[::7] = -0.0
    given[1::7] = np.float32(1e-45)  # subnormal
    for out in (np.ones(len(given), "f4"), np.ones(len(given) + 1, "f4")[1:]):
        assert copies([(out, given)]).begin().fine()
        assert out.tobytes() == given.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [1, FEW + 1])
def test_numbers_that_are_none_are_seen_in_every_place_of_a_line(busy, count, value):
    one = drawn(np.random.default_rng(5), PIECE + 70, count, "f4")
    prepared = Sums([one])
    for place in [*range(70), *range(PIECE - 3, PIECE + 70)]:
        kept, one.vectors[-1][place] = one.vectors[-1][place], value
        assert not prepared.begin().fine()
        one.vectors[-1][place] = kept
        assert prepared.begin().fine()


@pytest.mark.parametrize("out, given", [(0, 2), (2, 0), (2, 1)])
def test_vectors_that_begin_inside_a_number_of_their_type(busy, out, given):
    """Payloads may; what is written there is left to NumPy."""
    room = [np.zeros(4 * SHORT + 4, np.uint8)[skip : skip + 4 * SHORT].view("f4") for skip in (out, given)]
    room[1][:] = np.random.default_rng(0).random(SHORT)
    for _ in range(2):
        assert Sums([Sum(room[0], [2.0], [room[1]])]).begin().fine()
        assert np.array_equal(room[0], 2 * room[1])


def test_numbers_too_large_for_their_type_are_none(busy):
    big = np.full(SHORT, 3e38, "f4")
    assert not Sums([Sum(np.empty(SHORT, "f4"), [1.0, 1.0], [big, big])]).begin().fine()
    assert Sums([Sum(np.empty(SHORT, "f4"), [1.0, 1.0, -1.0], [big, big, big])]).begin().fine()


def test_the_mate_does_all_where_nobody_else_does(busy):
    """Who has begun a pass need not ask for it to go on."""
    one = drawn(np.random.default_rng(6), 4 * PIECE, 2, "f4")
    want, begun = expected(one), Sums([one]).begin()
    board = mate._mate(os.getpid(), "<f4")._board._numbers
    while board[mate_kernel.DONE] < board[mate_kernel.END]:
        time.sleep(0.001)
    np.testing.assert_allclose(one.out, want, rtol=3e-7)
    assert begun.fine()


def test_a_pass_is_done_though_the_mate_never_wakes_up(busy, monkeypatch):
    monkeypatch.setattr(mate.os, "eventfd_write", lambda *_: None)
    for seed in range(3):
        one = drawn(np.random.default_rng(seed), 3 * PIECE, 2, "f8")
        want = expected(one)
        assert Sums([one]).begin().fine()
        np.testing.assert_allclose(one.out, want, rtol=3e-15)


def test_a_pass_that_nobody_asks_for_is_over_before_its_memory_goes(busy):
    one = drawn(np.random.default_rng(7), 8 * PIECE, 3, "f4")
    want = expected(one)
    Sums([one]).begin()
    gc.collect()
    np.testing.assert_allclose(one.out, want, rtol=3e-7)
    begun = Sums([drawn(np.random.default_rng(8), 8 * PIECE, 3, "f4")]).begin()  # nobody else has its vectors
    gc.collect()
    assert begun.fine() and begun._held is None


def test_passes_of_several_threads_at_once(busy):
    """The mate has one at a time; the others are made by who begins them."""
    made, wrong = [], []

    def work(seed):
        rng = np.random.default_rng(seed)
        one = drawn(rng, 2 * PIECE + seed, 2, ("f4", "f8")[seed % 2])
        want, prepared = expected(one), Sums([one])
        for _ in range(200):
            one.out[:] = 0
            fine = prepared.begin().fine()
            if not fine or not np.allclose(one.out, want, rtol=1e-6):
                wrong.append(seed)
        made.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [0, 1, 2, 3] and not wrong


@pytest.mark.parametrize("how", ["while a pass goes on", "before", "at once"])
def test_processes_end_well_whatever_the_mate_is_at(how):
    """A thread that compiled while the process ended has broken it."""
    code = f"""
import numpy as np
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.sums import Sum, Sums
one = Sum(np.empty(WORTH, "f4"), [1.0], [np.ones(WORTH, "f4")])
if {how!r} == "before":
    assert Sums([one]).begin().fine()
begun = Sums([one]).begin()
if {how!r} == "at once":
    import os
    os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_has_a_mate_of_its_own():
    code = """
import os
import numpy as np
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.sums import Sum, Sums
one = Sum(np.empty(WORTH, "f4"), [2.0], [np.ones(WORTH, "f4")])
assert Sums([one]).begin().fine()
child = os.fork()
if not child:
    one.out[:] = 0
    os._exit(0 if Sums([one]).begin().fine() and (one.out == 2).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_second_processor_there_is_no_mate(monkeypatch):
    monkeypatch.setattr(mate, "cores", lambda: 1)
    monkeypatch.setattr(mate, "_mate", mate._mate.__wrapped__)
    monkeypatch.setattr(mate, "WORTH", 0)
    before, one = threading.active_count(), drawn(np.random.default_rng(9), SHORT, 2, "f4")
    want = expected(one)
    assert Sums([one]).begin().fine() and threading.active_count() == before
    np.testing.assert_allclose(one.out, want, rtol=3e-7)


def test_the_mate_keeps_away_from_who_wakes_it(busy):
    one = drawn(np.random.default_rng(10), SHORT, 2, "f4")
    processors = os.sched_getaffinity(0)
    try:
        for here in sorted(processors)[:2]:
            os.sched_setaffinity(0, {here})
            Sums([one]).begin().fine()
            os.sched_setaffinity(0, processors)
            Sums([one]).begin().fine()
    finally:
        os.sched_setaffinity(0, processors)
    found = mate._mate(os.getpid(), "<f4")
    assert found._away in processors
    assert os.sched_getaffinity(found._thread.native_id) == processors - {found._away}
