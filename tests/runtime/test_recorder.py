"""Traces that cannot be written: an error at the start, a warning later, and never the end of a run."""

import numpy as np
import pytest

from unstraggle import Invalid, Master, codes, trace
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential

from ..problems import Constant


def engine():
    return Virtual(Constant(2), Exponential(rate=1.0), rng=0)


def test_a_bad_path_is_an_error_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match=r"The trace .*run.jsonl cannot be written: "):
        Master(codes.uncoded(2), engine(), trace=tmp_path / "file" / "run.jsonl")


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "run.jsonl"
    with Master(codes.uncoded(2), engine(), trace=path) as master:
        for _ in range(60):
            master.gradient(np.zeros(8))
        written = len(trace.read(path))
        monkeypatch.setattr(trace, "append", full)
        for _ in range(60):
            assert master.gradient(np.zeros(8)).exact
    assert caplog.text.count("goes on without it: [Errno 28] No space left on device") == 1
    assert len(trace.read(path)) == written >= 50
