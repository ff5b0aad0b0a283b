"""The command line takes saved codes where it takes expressions."""

import json

import pytest
from typer.testing import CliRunner

from unstraggle import codes
from unstraggle.app.cli.commands import app
from unstraggle.torch.scheme import resolve


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "code.npz"
    codes.cyclic_repetition(4, s=1).save(path)
    return str(path)


def test_commands_take_a_file(saved):
    for command in (["simulate", saved, "--rounds", "100", "--json"], ["check", saved, "--json"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0 and "cyclic_repetition(4, s=1)" in done.output
        assert json.loads(done.output)


def test_training_takes_a_file(saved):
    code, stop, *_ = resolve(saved, None, None, 10)
    assert code.name == "cyclic_repetition(4, s=1)" and stop is None
