"""`unstraggle train` in a short form: the demonstration is the same with more steps."""

import json

import numpy as np
import pytest

from unstraggle import trace
from unstraggle.app.cli.train_words import print_results

from ..commands import run, run_process
from ..pictures import is_a_picture

SHORT = ("--workers", "4", "--slow", "1", "--factor", "3", "--unit", "0.01", "--steps", "4")


def test_train_compares_schemes_on_the_same_stragglers(tmp_path):
    data = json.loads(run("train", *SHORT, "--repeats", "2", "--json", "-o", str(tmp_path)).stdout)
    rows = {row["scheme"]: row for row in data["rows"]}
    assert list(rows) == ["wait for all", "ignore the slowest", "repetition", "multi-message"]
    losses = [rows[name]["loss"][0] for name in ("wait for all", "repetition", "multi-message")]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4)  # exact schemes take the same steps
    assert [row["exact"] for row in rows.values()] == [1.0, 0.0, 1.0, 1.0]
    assert rows["wait for all"]["speedup"] == [1.0, 0.0] and rows["ignore the slowest"]["speedup"] != [1.0, 0.0]
    for row in (rows["repetition"], rows["multi-message"]):
        assert row["speedup"][0] == pytest.approx(rows["wait for all"]["to_target"][0] / row["to_target"][0])
        assert row["speedup"][1] > 0, "a speed-up has an interval"
    assert is_a_picture(tmp_path / "loss.png")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["command"][:2] == ["unstraggle", "train"] and config["options"]["slow"] == 1
    for folder in ("wait-for-all", "ignore-the-slowest", "repetition", "multi-message"):
        steps = [json.loads(line) for line in (tmp_path / folder / "steps.jsonl").read_text().splitlines()]
        assert len(steps) == 8 and all(step["wall"] >= step["wait"] > 0 for step in steps) and steps[-1]["loss"] > 0
        assert all(sum(step["split"].values()) == pytest.approx(step["wall"]) for step in steps)
        assert len(trace.read(tmp_path / folder / "trace.jsonl")) == 9


def test_the_table_has_intervals_and_fits(capsys):
    row = {"scheme": "a", "to_target": (11.4, 1.4), "speedup": (2.8, 0.3), "loss": (0.085, 0.011), "wall": (0.312, 0.0)}
    row |= {"exact": 1.0, "megabytes": 0.32}
    about = {"task": "digits", "workers": 8, "steps": 40, "slow": 1, "changing": True, "factor": 10, "repeats": 4}
    about |= {"rows": [row, row | {"speedup": None, "to_target": None}], "target": 0.1, "stretch": None, "most_stretch": None}
    print_results(about, None)
    table = capsys.readouterr().out
    assert "11.4 ± 1.4" in table and "2.8 ± 0.3 x" in table and "never" in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.slow
def test_train_with_one_scheme_as_a_table():
    table = run("train", *SHORT, "--repeats", "1", "--scheme", "cyclic_repetition(4, s=1)").stdout
    assert "cyclic_repetition" in table and "wait for all" in table and "nan" not in table
    assert max(map(len, table.splitlines())) <= 80


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "6"], "multiple of 4"),
        (["--task", "chess"], "Unknown task 'chess'. Known: digits, mnist."),
        (["--task", "digit"], "Did you mean digits?"),
        (["--slow", "9"], "--slow must be below --workers"),
        (
            ["--scheme", "cyclic_repetition(5, s=1)", "--workers", "4", "--steps", "1", "--repeats", "1"],
            "is for 5 workers, but --workers is 4",
        ),
        (["--scheme", "cyclc(8, s=1)"], "Did you mean cyclic_repetition?"),
    ],
)
def test_bad_options(options, message):
    done = run("train", *options, check=False)
    assert done.returncode == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_demo_says_at_once_when_it_cannot_write():
    done = run_process("demo", "-o", "/dev/null/demo", check=False)
    assert done.returncode == 2 and "/dev/null is not a folder" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_demo(tmp_path):
    table = run_process("demo", "-o", str(tmp_path)).stdout
    assert "wait for all" in table and "multi-message" in table and max(map(len, table.splitlines()[:-1])) <= 80
    assert "diagnose:" in table and "plan auto:" in table and "measured:" in table
    assert is_a_picture(tmp_path / "loss.png")
    about = json.loads((tmp_path / "summary.json").read_text())
    assert (
        about["conclusion"]["said"] == "code"
        and "a different worker is slow" in run("diagnose", str(tmp_path / "wait-for-all")).stdout
    )
    assert json.loads((tmp_path / "config.json").read_text())["options"] == {"seed": 0}
