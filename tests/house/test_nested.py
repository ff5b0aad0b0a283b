"""Files whose JSON is nested deeper than Python can follow are refused like any other that is no JSON, wherever one is read."""

import numpy as np
import pytest

from tests.commands import run
from unstraggle import Code, Invalid, codes, replay_log
from unstraggle.problems import coco

DEEP = ["[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000]


@pytest.fixture(params=DEEP, ids=["lists", "objects"])
def deep(request, tmp_path):
    path = tmp_path / "deep.json"
    path.write_text(request.param + "\n")
    return path


@pytest.mark.parametrize("command", ["diagnose", "fit"])
def test_as_a_trace(deep, command):
    result = run(command, str(deep), check=False)
    assert result.returncode == 2 and "is not a trace" in result.stderr


@pytest.mark.parametrize("name", ["config.json", "steps.jsonl"])
def test_in_the_folder_of_a_run(deep, tmp_path, name):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "steps.jsonl").write_text('{"step": 0, "wall": 1.0, "wait": 1.0}\n')
    (folder / name).write_text(deep.read_text() + deep.read_text())
    result = run("report", str(folder), check=False)
    assert result.returncode == 2 and "is not JSON" in result.stderr


def test_as_a_log(deep):
    with pytest.raises(Invalid, match="line 1 is not JSON"):
        replay_log(deep, codes.uncoded(2))


def test_a_line_that_is_of_no_log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("[1, 2]\n")
    with pytest.raises(Invalid, match=r"neither a round nor events. Give a file that Master\(log=...\) wrote"):
        replay_log(path, codes.uncoded(2))


def test_as_options(deep):
    result = run("--config", str(deep), "check", "uncoded(2)", check=False)
    assert result.returncode == 2 and "cannot be read as JSON" in result.stderr


def test_as_a_saved_code(deep, tmp_path):
    path = tmp_path / "code.npz"
    np.savez(path, header=np.frombuffer(deep.read_bytes(), dtype=np.uint8))
    with pytest.raises(Invalid, match="is not a saved code, or it is damaged"):
        Code.read(path)


def test_as_annotations(deep):
    with pytest.raises(Invalid, match="not an annotation file"):
        coco._parsed(deep)
