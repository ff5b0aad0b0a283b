"""unstraggle fit."""

import json

import numpy as np
import pytest

from unstraggle.trace import from_seconds, write

from .. import commands


def run(*args):
    return commands.run("fit", *args, check=False)


@pytest.fixture
def recorded(tmp_path):
    seconds = np.random.default_rng(1).exponential(0.1, (100, 6)) + 1
    write(tmp_path / "t.jsonl", from_seconds(seconds))
    return tmp_path / "t.jsonl"


def test_it_prints_the_summary_the_table_and_the_verdict(recorded):
    done = run(recorded)
    assert done.returncode == 0 and not done.stderr
    for words in (
        "trace: 100 rounds, 6 workers",
        "idle, waiting for it",
        "ShiftedExponential(rate=",
        "ShiftedExponential fits",
    ):
        assert words in done.stdout


def test_it_prints_json_and_writes_results(recorded, tmp_path):
    done = run(recorded, "--json", "--seed", "3", "-o", tmp_path / "new/out")
    data = json.loads(done.stdout)
    assert data["seed"] == 3 and data["summary"]["workers"] == 6 and data["fit"]["ranking"][0]["family"] == "ShiftedExponential"
    assert json.loads((tmp_path / "new/out/fit.json").read_text()) == data
    assert (tmp_path / "new/out/fit.png").stat().st_size > 10_000
    assert "Written to" in run(recorded, "-o", tmp_path / "new/out").stdout


@pytest.mark.parametrize("heavy", [True, False])
def test_the_picture_shows_all_times(heavy):
    """Of heavy-tailed ones it was empty: a limit below zero on a logarithmic axis."""
    from unstraggle.app.plots import fitted_distributions
    from unstraggle.latency import fit

    rng = np.random.default_rng(0)
    times = np.sort(0.01 * (1 + rng.pareto(1.2, 400)) if heavy else 1 + rng.exponential(0.1, 400))
    axes = fitted_distributions(fit(times)).axes[0]
    low, high = axes.get_xlim()
    assert axes.get_xscale() == ("log" if heavy else "linear")
    assert 0.9 * times[0] < low <= times[0] and times[390] < high <= times[-1]


def test_a_torn_trace_is_read_with_one_line_of_warning(recorded):
    recorded.write_text(recorded.read_text()[:-20])
    done = run(recorded)
    assert done.returncode == 0 and "99 rounds" in done.stdout
    assert done.stderr.startswith("unstraggle:") and "incomplete" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_array_of_an_npz_file_is_named_by_its_key(tmp_path):
    np.savez(tmp_path / "t.npz", a=np.random.default_rng(1).uniform(1, 2, (20, 3)), b=np.ones((20, 3)))
    done = run(tmp_path / "t.npz", "--key", "b", "--json")
    assert json.loads(done.stdout)["fit"]["verdict"] == "Constant: all times are 1 s."
    refused = run(tmp_path / "t.npz")
    assert refused.returncode == 2 and "keys a, b" in refused.stderr


@pytest.mark.parametrize(
    "text, words",
    [("", "is empty"), ("a,b\n", "is not a trace"), (None, "No such file"), ('{"format": "unstraggle-trace"}', "version None")],
)
def test_bad_traces_exit_with_two_and_one_line(tmp_path, text, words):
    if text is not None:
        (tmp_path / "bad.jsonl").write_text(text)
    done = run(tmp_path / "bad.jsonl")
    assert done.returncode == 2 and words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_has_an_example():
    assert "Example:" in run("--help").stdout
