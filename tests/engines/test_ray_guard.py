"""A Ray that is started here is guarded by a token. Strangers try the cluster of test_engine_ray.py."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from unstraggle.engines import ray_connection
from unstraggle.engines.ray_connection import GUARDED, Connection, require_guarded
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


def test_who_cannot_join_is_told_of_the_token(monkeypatch):
    """Ray itself says so in its log only."""
    ended = []

    def init(address, **options):
        raise ConnectionError(f"Failed to connect to Ray cluster at {address}")

    ray = SimpleNamespace(init=init, shutdown=lambda: ended.append(1), is_initialized=lambda: False)
    monkeypatch.setattr(ray_connection, "load", lambda: ray)
    with pytest.raises(UnstraggleError, match=r"joined at address='10.0.0.1:6379'.* RAY_AUTH_MODE=token .*Failed to connect"):
        Connection.join("10.0.0.1:6379", workers=2, threads=1)
    assert ended == [1]
