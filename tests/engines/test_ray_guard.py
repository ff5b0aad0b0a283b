"""A Ray that is started here is guarded by a token."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from unstraggle.engines.ray_connection import GUARDED, QUIET, environment, require_guarded
from unstraggle.errors import UnstraggleError

STRANGER = """
import sys
from ray._raylet import GcsClient
GcsClient(address=sys.argv[1])
"""


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


@pytest.mark.slow
def test_a_stranger_is_turned_away():
    ray = pytest.importorskip("ray")
    with environment(QUIET):
        context = ray.init("local", num_cpus=1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    try:
        line, address = [sys.executable, "-c", STRANGER], context.address_info["address"]
        known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        refused = subprocess.run([*line, address], capture_output=True, text=True, env=known | {"RAY_AUTH_MODE": "disabled"})
        let_in = subprocess.run([*line, address], capture_output=True, text=True, env=known | {"RAY_AUTH_MODE": "token"})
    finally:
        ray.shutdown()
    assert refused.returncode and "AuthenticationError" in refused.stderr and not let_in.returncode, let_in.stderr
