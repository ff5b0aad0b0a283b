"""Config files: the same keys as the options, refused where there is no such option."""

import json

import pytest
from typer.testing import CliRunner

from unstraggle import Invalid
from unstraggle.app.cli import app

from ..commands import run

TEXT = """
seed = 3
[simulate]
codes = "uncoded(4)"
rounds = 200
json = true
[plan.redundancy]
workers = 6
seed = 5
[train]
shuffled = true
scheme = "uncoded(4)"
steps = 0
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text(TEXT)
    return path


def simulated(*args):
    done = CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_options_and_arguments_come_from_the_file(config):
    data = simulated("--config", config, "simulate")
    assert data["seed"] == 3 and [(row["code"], row["rounds"]) for row in data["results"]] == [("uncoded(4)", 200)]


def test_the_command_line_wins(config):
    data = simulated("--config", config, "simulate", "uncoded(5)", "uncoded(6)", "--rounds", "100", "--seed", "4")
    assert data["seed"] == 4 and [(row["code"], row["rounds"]) for row in data["results"]] == [
        ("uncoded(5)", 100),
        ("uncoded(6)", 100),
    ]


def test_a_command_in_a_group(config):
    data = simulated("--config", config, "plan", "redundancy", "Exponential(1)", "--json")
    assert data["params"]["n"] == 6


def test_lists_and_opposites(config):
    from typer.main import get_command

    from unstraggle.app.cli.config import defaults

    found = defaults(config, get_command(app))
    assert found["train"] == {"by_label": False, "scheme": ["uncoded(4)"], "steps": 0, "seed": 3}
    assert found["plan"]["redundancy"] == {"workers": 6, "seed": 5}
    assert found["simulate"]["codes"] == ["uncoded(4)"] and found["simulate"]["as_json"] is True
    assert "seed" not in found["report"]  # which has no such option


@pytest.mark.parametrize(
    "text, words",
    [
        ("[simulate]\nround = 3", "unknown option simulate.round. Did you mean rounds?"),
        ("[simulat]\nrounds = 3", "unknown command simulat. Did you mean simulate?"),
        ("sede = 1", "unknown option sede. Did you mean seed?"),
        ("[plan.auto]\ndimm = 3", "unknown option plan.auto.dimm. Did you mean dim?"),
        ("[plan.all]\ndim = 3", "unknown command plan.all."),
        ("[plan]\nauto = 3", "plan.auto is a command, so it needs a table, but got 3. Write [plan.auto]."),
        ("simulate = 3", "simulate is a command, so it needs a table"),
        ("x = [", "cannot be read as TOML"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, words):
    (tmp_path / "bad.toml").write_text(text)
    done = CliRunner().invoke(app, ["--config", str(tmp_path / "bad.toml"), "simulate", "uncoded(2)"])
    assert isinstance(done.exception, Invalid) and words in str(done.exception)


@pytest.mark.parametrize("text", ["[1, 2]", '{"command": ["unstraggle", "dance"], "options": {}}', '{"command": ["run"]}', "{"])
def test_bad_json_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    done = CliRunner().invoke(app, ["--config", str(tmp_path / "config.json"), "simulate", "uncoded(2)"])
    assert isinstance(done.exception, Invalid) and "config.json" in str(done.exception)


def test_as_a_process(config, tmp_path):
    (tmp_path / "bad.toml").write_text("[simulate]\nrounds = 'many'")
    done = run("--config", str(tmp_path / "bad.toml"), "simulate", "uncoded(2)", check=False)
    assert done.returncode == 2 and "--rounds" in done.stderr
    done = run("--config", str(tmp_path / "none.toml"), "simulate", "uncoded(2)", check=False)
    assert done.returncode == 2 and "none.toml" in done.stderr and len(done.stderr.splitlines()) == 1
