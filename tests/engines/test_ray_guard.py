"""A Ray that is started here is guarded by a token. Strangers try the cluster of test_engine_ray.py."""

import tomllib
from pathlib import Path

import pytest

from unstraggle.engines.ray_connection import GUARDED, require_guarded
from unstraggle.errors import UnstraggleError


def test_older_versions_are_not_started():
    """They run the code of whoever reaches one of eight ports, on all interfaces."""
    for version in ("2.40.0", "2.58.1", "1.13.0"):
        with pytest.raises(UnstraggleError, match=rf"Ray {version} would run code of whoever .* Use ray>=2\.59"):
            require_guarded(version)
    for version in ("2.59.0", "2.60.0rc1", "3.0.0.dev0"):
        require_guarded(version)


def test_the_version_that_is_installed_is_that_version():
    needs = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = "ray>=" + ".".join(map(str, GUARDED))
    assert needs["ray"] == [wanted] and wanted in needs["dev"]
