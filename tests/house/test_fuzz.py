"""Whatever people pass to a public function or a command: an error of this package comes of it, or none."""

import numpy as np
import pytest

from unstraggle import UnstraggleError, trace

from ..commands import run
from ..fuzzing import MODULES, arguments, command_line, commands, public
from ..torch.small_transformers import unless_there

CALLS, LINES = 60, 12
"""Of each function, and of each command: some 10,000 in all."""


@pytest.fixture
def transformers(monkeypatch):
    with unless_there(monkeypatch):
        yield


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("module", MODULES)
def test_only_errors_of_this_package_come_out(module, tmp_path, monkeypatch):
    """A new public name is called as soon as it is in `__all__`."""
    monkeypatch.chdir(tmp_path)
    rng, raw = np.random.default_rng(0), []
    for name, function in public(module).items():
        for _ in range(CALLS):
            positional, named = arguments(rng, function)
            try:
                function(*positional, **named)
            except UnstraggleError as error:
                assert str(error).strip()
            except Exception as error:
                raw.append(f"{name}(*{positional!r:.200}, **{named!r:.400}) raised {error!r:.200}")
    assert not raw, "\n".join(raw[:20])


@pytest.mark.parametrize("words, parameters", [pytest.param(*one, id="-".join(one[0])) for one in commands()])
def test_commands_say_what_is_wrong_with_a_value(words, parameters, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace.write("trace.jsonl", trace.from_seconds(np.random.default_rng(0).exponential(size=(12, 4)) + 0.1))
    good = {"code": "uncoded(4)", "codes": "uncoded(4)", "trace": "trace.jsonl", "source": "trace.jsonl", "load": "2"}
    good |= {"dim": "8", "directory": ".", "directories": ".", "rounds": "5", "engine": "virtual", "latency": "Exponential(1)"}
    rng = np.random.default_rng(0)
    for _ in range(LINES):
        line = command_line(rng, words, parameters, good)
        done = run(*line, check=False)
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr, (line, done.stderr)
