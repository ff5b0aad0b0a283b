"""Every example runs, in a short form, as a process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_example(script):
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--steps", "8"], capture_output=True, text=True, timeout=240, cwd=FOLDER.parent
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout)]
    assert len(losses) == 2 and losses[-1] < losses[0]


def test_the_table_names_every_example():
    assert sorted(re.findall(r"^\| `(\w+\.py)`", (FOLDER / "README.md").read_text(), re.MULTILINE)) == SCRIPTS
