"""Traces: what is written is read, a crash costs one round at most, and the summary says what was put in."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from unstraggle import Invalid, codes, simulate
from unstraggle.latency import Replay
from unstraggle.trace import TornTrace, Trace, append, from_seconds, read, write

REAL = Path(__file__).parents[3] / "shared/data/traces/bytedance"
HEADER = '{"format": "unstraggle-trace", "version": 1, "workers": 2}\n'


def small(rounds=3, seed=0, **more):
    durations = np.random.default_rng(seed).uniform(0.5, 2.0, (rounds, 2, 3)).round(3)
    return from_seconds(durations, **more)


def equal(one, other):
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("start", "end", "arrival", "bytes", "work", "numbers")]
    return all(np.allclose(a, b, rtol=1e-8, equal_nan=True) for a, b in pairs) and one.meta == other.meta


def with_gaps():
    """A task that was not finished, one that was not begun, one without a message, and a wait before the first."""
    start = [[[0.5, 1.5, 2.5], [0.0, 2.0, np.inf]]]
    end = [[[1.5, 2.0, np.inf], [1.0, 3.0, np.inf]]]
    arrival = [[[1.75, 2.5, np.inf], [np.inf, 3.5, np.inf]]]
    return Trace(start, end, arrival, [[[8, 8, np.inf], [0, 8, np.inf]]], numbers=[41], meta={"host": "a", "gpu": [1, 2]})


@pytest.mark.parametrize("recorded", [small(), with_gaps(), small(work=[0.5, 0.25, 0.25])], ids=["plain", "gaps", "work"])
def test_what_is_written_is_read(tmp_path, recorded):
    write(tmp_path / "new/folder/t.jsonl", recorded)
    assert equal(read(tmp_path / "new/folder/t.jsonl"), recorded)
    assert [path.name for path in (tmp_path / "new/folder").iterdir()] == ["t.jsonl"]


def test_the_file_is_compact_json_lines(tmp_path):
    write(tmp_path / "t.jsonl", with_gaps())
    header, line = (json.loads(text) for text in (tmp_path / "t.jsonl").read_text().splitlines())
    assert header == {"format": "unstraggle-trace", "version": 1, "workers": 2, "work": 1.0, "host": "a", "gpu": [1, 2]}
    assert line["round"] == 41 and line["end"] == [[1.5, 2.0, None], [1.0, 3.0, None]] and "start" in line
    big = np.random.default_rng(1).uniform(0.5, 2.0, (20, 40, 10))
    write(tmp_path / "big.jsonl", from_seconds(big))
    assert (tmp_path / "big.jsonl").stat().st_size < 14 * big.size
    assert "start" not in (tmp_path / "big.jsonl").read_text()  # tasks follow one another


def test_rounds_are_appended_as_traces_and_as_they_stand_in_the_file(tmp_path):
    path = tmp_path / "t.jsonl"
    whole = small(rounds=4)
    append(path, whole[:1])
    append(path, whole[1:3])
    append(path, {"round": 3, "end": whole.end[3].tolist()})
    assert equal(read(path), whole)
    append(path, {"end": [[1.0], [2.0, 3.0, 4.0, 5.0]], "arrival": [[1.5], [3.0, 4.0, None, 6.0]], "bytes": 8})
    longer = read(path)
    assert longer.tasks == 4 and np.isinf(longer.end[:4, :, 3]).all() and np.isinf(longer.end[4, 0, 1:]).all()
    assert np.isnan(longer.arrival[:4]).all() and longer.arrival[4, 1].tolist() == [3.0, 4.0, np.inf, 6.0]
    assert longer.bytes[4].tolist() == [[8.0] * 4] * 2 and longer.seconds[4].tolist() == [1.0, 1.25]


@pytest.mark.parametrize("cut", [1, 30, -1])
def test_a_torn_last_line_is_left_out_and_never_harms_the_others(tmp_path, cut):
    path, whole = tmp_path / "t.jsonl", small(rounds=4)
    write(path, whole[:3])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1].rstrip(b"\n")[:cut])
    with pytest.warns(TornTrace, match=r"last line \(4\) is incomplete"):
        assert equal(read(path), whole[:2])
    with pytest.warns(TornTrace, match="cut off"):
        append(path, whole[2:])
    assert equal(read(path), whole)


@pytest.mark.parametrize("ending", [b"", b"\n\n"])
def test_a_last_line_without_a_line_break_is_complete(tmp_path, ending):
    path, whole = tmp_path / "t.jsonl", small(rounds=3)
    write(path, whole[:2])
    path.write_bytes(path.read_bytes().rstrip(b"\n") + ending)
    assert equal(read(path), whole[:2])
    append(path, whole[2:])
    assert equal(read(path), whole)


def test_a_torn_header_is_written_again(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(HEADER[:20])
    with pytest.warns(TornTrace):
        append(path, small())
    assert equal(read(path), small())
    path.write_text("")
    append(path, small())
    assert equal(read(path), small())


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "t.jsonl"
    write(path, small())
    with pytest.raises(Invalid, match="plain JSON"):
        write(path, small(meta={"when": object()}))
    assert equal(read(path), small())


FILES = {
    "empty": ("", "is empty"),
    "not json": ("time,worker\n1,2\n", "is not a trace"),
    "version 2": (HEADER.replace("1,", "2,"), "version 2"),
    "no workers": (HEADER.replace(', "workers": 2', ""), '"workers"'),
    "no rounds": (HEADER, "no rounds"),
    "n changes": (HEADER + '{"end": [[1], [2]]}\n{"end": [[1], [2], [3]]}\n', "line 3: this trace has 2 workers"),
    "no end": (HEADER + '{"round": 3}\n', 'line 2: a round needs "end"'),
    "nan": (HEADER + '{"end": [[1], [NaN]]}\n', "line 2: a trace holds numbers and null (for never), but got NaN"),
    "negative": (HEADER + '{"round": 7, "end": [[1], [-2]]}\n', "end=-2.0 in round 7, worker 1, task 0"),
    "backwards": (HEADER + '{"start": [[2], [0]], "end": [[1], [1]]}\n', "end after they start"),
    "early arrival": (HEADER + '{"end": [[1], [2]], "arrival": [[1], [1.5]]}\n', "arrival=1.5"),
    "negative bytes": (HEADER + '{"end": [[1], [2]], "bytes": -1}\n', "sizes >= 0"),
    "words": (HEADER + '{"end": [["soon"], [2]]}\n', "a list of numbers for each worker"),
    "flat": (HEADER + '{"end": [1, 2]}\n', "a list of numbers for each worker"),
    "other shape": (HEADER + '{"end": [[1], [2]], "arrival": [[1, 2], [3, 4]]}\n', '"arrival" needs'),
    "rubbish inside": (HEADER + '{"end": [[1], \n{"end": [[1], [2]]}\n', "line 2 is not JSON, though lines follow"),
    "switches": (HEADER + '{"end": [[1], [2]], "switches": [1]}\n', "a list of objects"),
    "no work": (HEADER.replace("2}", '2, "work": 0}') + '{"end": [[1], [2]]}\n', "work > 0"),
    "work of others": (HEADER.replace("2}", '2, "work": [[1], [2], [3]]}') + '{"end": [[1], [2]]}\n', "Trace.work"),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files_are_refused_with_rule_value_and_way_out(tmp_path, name):
    text, words = FILES[name]
    (tmp_path / "t.jsonl").write_text(text)
    with pytest.raises(Invalid) as caught:
        read(tmp_path / "t.jsonl")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda path: Trace([[1.0]], [[2.0]]), "(rounds, workers, tasks)"),
        (lambda path: Trace(np.zeros((2, 2, 1)), np.ones((3, 2, 1))), "Trace.start needs numbers of shape (3, 2, 1)"),
        (lambda path: from_seconds([[1.0, np.nan]]), "end=nan"),
        (lambda path: from_seconds([[1.0, -1.0]]), "end=-1.0 in round 0, worker 1"),
        (lambda path: from_seconds([1.0, 2.0]), "shape (2,)"),
        (lambda path: Trace(0.0, [[[1.0], [1.0]]], [[[2.0], [np.nan]]]), "arrival=nan"),
        (lambda path: write(path, small(meta={"workers": 3})), "Use another name"),
        (lambda path: append(path, from_seconds([[1.0, 2.0, 3.0]])), "workers=2"),
        (lambda path: append(path, small(work=0.5)), "work=0.5"),
        (lambda path: append(path, {"end": [[1.0]]}), "has 2 workers"),
        (lambda path: append(path, {"round": 1}), 'needs "end"'),
        (lambda path: read(path, key="a"), "Leave it out"),
        (lambda path: read(path, stage=0), "Leave it out"),
    ],
)
def test_bad_traces_are_refused(tmp_path, make, words):
    write(tmp_path / "t.jsonl", small())
    with pytest.raises(Invalid) as caught:
        make(tmp_path / "t.jsonl")
    assert words in str(caught.value)
    assert equal(read(tmp_path / "t.jsonl"), small())


def test_seconds_count_what_was_done():
    recorded = with_gaps()
    assert recorded.durations.tolist() == [[[1.0, 0.5, np.inf], [1.0, 1.0, np.inf]]]
    assert recorded.seconds.tolist() == [[0.75, 1.0]] and repr(recorded) == "Trace(1 round, 2 workers, 3 tasks)"
    halves = from_seconds([[[1.0, 2.0], [3.0, np.inf]], [[np.inf, np.inf], [1.0, 1.0]]], work=[[0.5, 0.5], [1.0, 1.0]])
    assert halves.seconds.tolist() == [[3.0, 3.0], [np.inf, 1.0]]
    with pytest.raises(ValueError, match="read-only"):
        recorded.end[0, 0, 0] = 5.0


def test_a_trace_can_be_replayed():
    recorded = from_seconds(np.random.default_rng(2).uniform(1.0, 2.0, (50, 6)))
    times = simulate(codes.uncoded(6), Replay(recorded.seconds), rounds=50, rng=0).time.values
    assert np.array_equal(times, recorded.seconds.max(axis=1))


def test_summary_of_workers_that_are_alike():
    seconds = np.random.default_rng(3).exponential(size=(4000, 8)) + 1
    summary = from_seconds(seconds).summary()
    assert (summary.rounds, summary.workers, summary.tasks, summary.unfinished) == (4000, 8, 1, 0)
    assert summary.slowest == pytest.approx((seconds.max(axis=1) / np.median(seconds, axis=1)).mean())
    assert summary.idle_share == pytest.approx(1 - 2 / (1 + sum(1 / np.arange(1, 9))), abs=0.01)
    assert summary.persistence == pytest.approx(1 / 8, abs=0.02) and summary.chance == 1 / 8
    assert abs(summary.autocorrelation) < 0.02 and summary.drift == pytest.approx(1, abs=0.02) and summary.drift_p > 0.01
    assert summary.load_curve == () and len(str(summary).splitlines()) == 6
    assert max(map(len, str(summary).splitlines())) <= 80


def test_summary_of_one_worker_that_is_always_slow():
    seconds = np.random.default_rng(4).uniform(1.0, 1.1, (60, 4)) * [1, 1, 2.35, 1]
    summary = from_seconds(seconds).summary()
    assert summary.persistence == 1 and summary.autocorrelation > 0.95 and summary.slowest == pytest.approx(2.3, abs=0.1)
    assert summary.idle_share == pytest.approx(1 - (3 + 2.35) / 4 / 2.35, abs=0.02)


def test_summary_sees_drift_and_load():
    durations = np.random.default_rng(5).uniform(0.9, 1.1, (100, 4, 5))
    durations[50:] *= 1.5
    durations[:, :, 0] *= 2  # the first task is slow, as with a cold cache
    summary = from_seconds(durations).summary()
    assert summary.drift == pytest.approx(1.5, abs=0.05) and summary.drift_p < 1e-6
    assert summary.load_curve == pytest.approx((1.0, 0.75, 0.667, 0.625, 0.6), abs=0.02)
    work = from_seconds(durations, work=[2, 1, 1, 1, 1]).summary()
    assert work.load_curve == pytest.approx([1.0] * 5, abs=0.02) and "0.6 x 5 x" in str(summary)


def test_summary_of_ties_of_few_rounds_and_of_workers_that_never_finish():
    equal_times = from_seconds(np.ones((10, 4))).summary()
    assert equal_times.persistence == 1 / 4 and equal_times.idle_share == 0 and np.isnan(equal_times.autocorrelation)
    one = from_seconds([[1.0, 2.0]]).summary()
    assert np.isnan(one.persistence) and one.to_dict()["persistence"] is None and "nan" not in str(one)
    lossy = from_seconds([[1.0, np.inf], [1.0, 2.0], [1.0, 3.0]]).summary()
    assert lossy.unfinished == 1 and lossy.slowest == pytest.approx((2 / 1.5 + 3 / 2) / 2)
    lost = from_seconds([[1.0, np.inf]]).summary()
    assert lost.unfinished == 1 and np.isnan(lost.slowest) and json.dumps(lost.to_dict(), allow_nan=False)


def test_arrays_of_npz_files(tmp_path):
    path = tmp_path / "t.npz"
    stages = np.random.default_rng(6).uniform(1, 2, (5, 3, 2))
    np.savez(path, J=stages, J_mb=np.stack([stages / 4, 3 * stages / 4], axis=3), J_steps=[3, 4, 7, 8, 9])
    assert read(path, key="J").seconds == pytest.approx(stages.sum(axis=2))
    parts = read(path, key="J_mb")
    assert parts.seconds == pytest.approx(stages.sum(axis=2)) and parts.tasks == 2 and parts.numbers.tolist() == [3, 4, 7, 8, 9]
    assert read(path, key="J", stage=1).seconds == pytest.approx(stages[:, :, 1])
    with pytest.raises(Invalid, match="keys J, J_mb, but got key=None"):
        read(path)
    with pytest.raises(Invalid, match="stages 0 to 1, but got stage=2"):
        read(path, key="J", stage=2)
    np.savez(path, seconds=stages[:, :, 0])
    assert read(path).seconds == pytest.approx(stages[:, :, 0])
    path.write_text("nothing of the kind")
    with pytest.raises(Invalid, match="cannot be read as an npz file"):
        read(path)


def operations(path, drop=None):
    """Two steps, two ranks, two stages and two micro-batches, with an operation that is not computing."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    cells = [(s, r, g, m) for s in (5, 8) for r in (0, 1) for g in (0, 1) for m in (0, 1)]
    columns = {"step": [], "dp_rank": [], "stage": [], "mb_id": [], "optype": [], "duration": []}
    for place, cell in enumerate(cells[:drop]):
        for kind, time in (("forward-compute", 1.0), ("backward-compute", float(place)), ("forward-send", 100.0)):
            for name, value in zip(columns, (*cell, kind, time), strict=True):
                columns[name].append(value)
    parquet.write_table(pyarrow.table(columns), path)


def test_operations_of_parquet_files(tmp_path):
    operations(tmp_path / "t.parquet")
    recorded = read(tmp_path / "t.parquet")
    assert (len(recorded), recorded.n, recorded.tasks) == (2, 2, 2) and recorded.numbers.tolist() == [5, 8]
    assert recorded.seconds.tolist() == [[4.0 + 6, 4.0 + 22], [4.0 + 38, 4.0 + 54]]
    assert read(tmp_path / "t.parquet", stage=0).seconds.tolist() == [[3.0, 11.0], [19.0, 27.0]]


def test_bad_parquet_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    operations(path, drop=-1)
    with pytest.raises(Invalid, match="lacks compute times"):
        read(path)
    from pyarrow import parquet, table

    parquet.write_table(table({"step": [1]}), path)
    with pytest.raises(Invalid, match="lacks dp_rank, stage"):
        read(path)
    path.write_text("nothing of the kind")
    with pytest.raises(Invalid, match="cannot be read as a parquet file"):
        read(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Invalid, match=r"pip install 'unstraggle\[traces\]'"):
        read(path)


@pytest.mark.skipif(not REAL.exists(), reason="the ByteDance traces are not beside the repository")
@pytest.mark.parametrize("job", ["SE", "AR", "ST"])
def test_real_operations_add_up_to_the_published_seconds(job):
    operations, seconds = read(REAL / f"trace-{job}.parquet"), read(REAL / "compute_seconds.npz", key=job)
    parts = read(REAL / "compute_seconds.npz", key=f"{job}_mb")
    assert operations.seconds == pytest.approx(seconds.seconds, rel=1e-6)
    assert operations.durations == pytest.approx(parts.durations, rel=1e-6)
    assert np.array_equal(operations.numbers, seconds.numbers)


@pytest.mark.skipif(not REAL.exists(), reason="the ByteDance traces are not beside the repository")
def test_real_stragglers_persist_or_do_not():
    sequences, slowed = (read(REAL / f"trace-{job}.parquet") for job in ("SE", "AR"))
    assert sequences.summary().persistence < 0.1 and abs(sequences.summary().autocorrelation) < 0.1
    assert slowed.summary().persistence == 1 and slowed.summary().autocorrelation > 0.99
    first = read(REAL / "trace-AR.parquet", stage=0).summary()
    assert first.slowest == pytest.approx(2.35, abs=0.02) and slowed.summary().slowest == pytest.approx(1.33, abs=0.02)
