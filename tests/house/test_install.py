"""The wheel with nothing but what it requires: no torch, no Ray, no MPI. A venv that sees only those packages."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest

from ..pictures import is_a_picture

ROOT = Path(__file__).parents[2]
OPTIONAL = ("torch", "ray", "mpi4py", "triton", "sklearn", "mlxtend", "pyarrow")
MODEL = "ShiftedExponential(rate=10, shift=0.01)"


def required(name, seen=None):
    """The distributions that a package needs, extras left out, with those that they need."""
    seen = {} if seen is None else seen
    for line in metadata.requires(name) or ():
        wanted = re.match(r"[\w.-]+", line)[0]
        if "extra ==" in line or "platform_system ==" in line or wanted in seen:
            continue
        seen[wanted] = metadata.distribution(wanted)
        required(wanted, seen)
    return seen


def link_packages(folder):
    """Links to the top-level files and folders of what is required."""
    folder.mkdir()
    for found in required("unstraggle").values():
        tops = {file.parts[0] for file in found.files if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            if not (folder / top).exists():
                (folder / top).symlink_to(found.locate_file(top))


def build_wheel(folder):
    """The wheel of this repository; without hatchling here, pip has to fetch it."""
    isolation = ["--no-build-isolation", "--no-index"] if importlib.util.find_spec("hatchling") else []
    line = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "-w", str(folder), str(ROOT)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode and not isolation:
        pytest.skip(f"hatchling is not installed, and pip cannot fetch it: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("unstraggle-*.whl"))


def link_kernels(package):
    """What Numba has compiled of this repository, for the same sources in the wheel: compiling takes half a minute."""
    here = ROOT / "unstraggle"
    for source in here.rglob("*.py"):
        times = source.stat()
        os.utime(package / source.relative_to(here), ns=(times.st_atime_ns, times.st_mtime_ns))
    for compiled in here.rglob("__pycache__/*.nb?"):
        copy = package / compiled.relative_to(here)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(compiled.read_bytes())


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The folder of a venv with the wheel and its requirements only."""
    folder = tmp_path_factory.mktemp("core")
    wheel = build_wheel(folder)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    line = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(line, check=True)
    link_packages(folder / "packages")
    site = next((folder / "venv/lib").glob("python*")) / "site-packages"
    (site / "core.pth").write_text(f"{folder / 'packages'}\n")
    link_kernels(site / "unstraggle")
    return folder


def start(core, program, *args):
    """A program of the venv, far from the repository."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA", "COV"))} | {"COLUMNS": "80"}
    line = [str(core / "venv/bin" / program), *map(str, args)]
    return subprocess.run(line, capture_output=True, text=True, cwd=core, env=environment)


def test_the_venv_is_bare_and_runs_what_was_installed(core):
    code = "import importlib.util as u, json, sys, unstraggle; print(json.dumps([unstraggle.__file__, "
    code += "[name for name in sys.argv[1:] if u.find_spec(name)]]))"
    place, there = json.loads(start(core, "python", "-c", code, *OPTIONAL).stdout)
    assert there == [] and Path(place).is_relative_to(core)
    assert (Path(place).parent / "app/live/page.html").exists()  # files that are not Python are part of the wheel


@pytest.mark.parametrize(
    "module, heavy",
    [
        ("unstraggle", ("numpy", "scipy", "numba", "matplotlib", "torch", "ray", "mpi4py", "rich", "typer")),
        ("unstraggle.app.cli.commands", ("scipy", "numba", "matplotlib", "torch", "ray", "mpi4py")),
        ("unstraggle.codes, unstraggle.engines.local_worker", ("scipy.stats", "numba", "matplotlib", "torch", "typer")),
        ("unstraggle.study.simulation, unstraggle.runtime.master", ("scipy.stats", "numba", "matplotlib", "torch", "typer")),
    ],
)
def test_importing_loads_little(module, heavy):
    """In the full environment, where all of them could be loaded."""
    code = f"import sys, {module}; print(*[name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_kernels_are_cached_and_importing_them_compiles_nothing():
    code = """
from numba.core.dispatcher import Dispatcher
from unstraggle.runtime import mate_kernel, sums_kernel
from unstraggle.scheme import recovery_times
from unstraggle.quantizers import cpu_kernels
modules = recovery_times, sums_kernel, mate_kernel, cpu_kernels
found = [v for m in modules for v in vars(m).values() if isinstance(v, Dispatcher)]
print(len(found), sum(len(one.signatures) for one in found), *{type(one._cache).__name__ for one in found})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, compiled, *caches = done.stdout.split()
    assert int(count) >= 20 and int(compiled) == 0 and caches == ["FunctionCache"]


@pytest.mark.parametrize(
    "args, words",
    [
        (("--help",), "reproduce"),
        (("simulate", "cyclic_repetition(12, s=3)", "--rounds", "1000"), "100 %"),
        (("plan", "redundancy", MODEL, "-n", "6"), "Use fractional_repetition"),
        (("plan", "auto", MODEL, "-n", "4", "--rounds", "500"), "wait for all"),
        (("check", "cyclic_repetition(6, s=2)"), "keeps its promises"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_that_need_nothing_else(core, args, words):
    done = start(core, "unstraggle", *args)
    assert done.returncode == 0 and words in done.stdout and done.stderr == ""


def test_a_trace_is_recorded_and_diagnosed(core):
    done = start(core, "unstraggle", "measure", "-n", "2", "--rounds", "12", "-o", "measured")
    assert done.returncode == 0 and "Next:  unstraggle diagnose measured" in done.stdout
    done = start(core, "unstraggle", "diagnose", "measured")
    assert done.returncode == 0 and "of the workers' time" in done.stdout


def test_a_figure_is_drawn(core):
    done = start(core, "unstraggle", "reproduce", "mmc-fig1", "--quick", "-o", "figure")
    assert done.returncode == 0 and "repetition" in done.stdout
    assert is_a_picture(core / "figure/mmc-fig1.png")


@pytest.mark.parametrize(
    "args, extra",
    [
        (("train",), "unstraggle[demo]"),
        (("demo",), "unstraggle[demo]"),
        (("measure", "--task", "digits"), "unstraggle[demo]"),
        (("run", "uncoded(2)", "--engine", "ray"), "unstraggle[ray]"),
        (("run", "uncoded(2)", "--engine", "mpi"), "unstraggle[mpi]"),
        (("measure", "--engine", "ray"), "unstraggle[ray]"),
        (("bench", "mpi"), "unstraggle[mpi]"),
        (("fit", "trace.parquet"), "unstraggle[traces]"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_what_needs_more_says_how_to_get_it(core, args, extra):
    (core / "trace.parquet").write_bytes(b"PAR1")
    done = start(core, "unstraggle", *args)
    assert done.returncode == 2 and f"pip install '{extra}'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_make_demo_installs_only_what_the_demo_needs(tmp_path):
    """In the same .venv, with a mark of its own, so that `make test` installs the rest; and it speaks at once."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())

    def planned(target):
        return subprocess.run(["make", "-n", "-C", tmp_path, target], capture_output=True, text=True, check=True).stdout

    demo = planned("demo")
    assert "-e '.[demo]'" in demo and "[dev]" not in demo and demo.index("Installing") < demo.index("pip install")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.match(r"[\w-]+", line)[0] for line in extras["demo"]} == {"torch", "scikit-learn"}
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.ready-demo").touch()
    assert "pip install" not in planned("demo") and "-e '.[dev]'" in planned("check")
    (tmp_path / ".venv/.ready").touch()
    assert "pip install" not in planned("demo") + planned("check")
