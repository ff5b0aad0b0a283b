"""Whatever people pass to a public function or command: an error of this package comes of it, or none."""

import numpy as np
import pytest

from unstraggle import UnstraggleError

from ..fuzzing import MODULES, arguments, public

CALLS = 50
"""Of each function; about 10,000 in all."""


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
