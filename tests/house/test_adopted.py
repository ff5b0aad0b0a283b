"""Scripts as people have them, and what they become: the diffs are small, and the adopted ones train to the same numbers."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unstraggle as us
from unstraggle.torch import coded

from ..diffs import added, applied

FOLDER = Path(__file__).parents[2] / "examples" / "adopted"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
AT_MOST = {"ddp": 8, "nanogpt": 12, "trainer": 6, "lightning_fit": 4, "imagenet": 15, "dcgan": 30}
NEEDS = {"trainer": "transformers", "jax_mlp": "jax"}
"""Libraries that are no part of the set-up."""
ON_WORKERS = ("word_lm",)
"""Run on processes in every test run, the others with `-m slow`: its workers import little."""
DOUBLE = ("nanogpt",)
"""In double precision: keys of attention have a bias whose gradient is rounding only, and AdamW makes steps of that."""
SCHEME = "fractional_repetition(4, s=1)"

# Lightning 2.6 makes a LeafSpec, which torch 2.13 deprecates; these small loops need no processes to read their data.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*number of training batches.*"),
]


def originally(name):
    return (FOLDER / f"{name}.py").read_text()


def adopted(name):
    return applied(originally(name), (FOLDER / f"{name}.diff").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_an_adopted_script_trains_as_its_original_does(name, tmp_path, monkeypatch):
    monkeypatch.setattr(coded, "engine_maker", in_this_process)
    same_numbers(*both(name, tmp_path, monkeypatch, adopted(name)))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in ON_WORKERS else pytest.mark.slow) for name in NAMES])
def test_an_adopted_script_on_workers_trains_as_its_original_does(name, tmp_path, monkeypatch):
    if name in ("dcgan", "vae"):  # workers draw numbers of their own: times 0, they are the same
        text = adopted(name).replace("return torch.randn", "return 0 * torch.randn")
        same_numbers(*both(name, tmp_path, monkeypatch, text, nothing))
        return
    same_numbers(*both(name, tmp_path, monkeypatch, adopted(name)))


@pytest.mark.parametrize("name", ["imagenet", pytest.param("dcgan", marks=pytest.mark.slow)])
def test_losses_do_not_depend_on_the_scheme(name, tmp_path, monkeypatch):
    monkeypatch.setattr(coded, "engine_maker", in_this_process)
    found = []
    schemes = '"none", workers=3', f'"{SCHEME}"', '"work_conserving(4, load=2, pieces=2)"'
    for number, scheme in enumerate(schemes):
        module = loaded(f"{name}_{number}", adopted(name).replace(f'"{SCHEME}"', scheme), tmp_path, monkeypatch)
        found.append(trained(module, sample_noise)[0])
    for losses in found[1:]:
        torch.testing.assert_close(losses, found[0], rtol=1e-4, atol=1e-6)


def test_the_diffs_are_as_small_as_the_table_says():
    table = (FOLDER / "README.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)\.py` \| [^|]+ \| (\d+) \|", table, re.MULTILINE))
    counts = {name: added((FOLDER / f"{name}.diff").read_text()) for name in NAMES}
    assert rows == {name: str(count) for name, count in counts.items()} and len(rows) == 16
    assert all(counts[name] <= most for name, most in AT_MOST.items())
    assert all(compile(adopted(name), name, "exec") for name in NAMES)  # also of those that cannot run here


# How


def in_this_process(engine, options, latency, seed):
    return lambda problem: us.engines.Virtual(problem, us.latency.ShiftedExponential(rate=1.0), rng=seed)


def both(name, folder, patch, text, noise=None):
    """(losses, parameters) of the original and of an adopted text."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is no part of the set-up")
    patch.chdir(folder)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if name in DOUBLE else before)
    try:
        return _both(name, folder, patch, text, noise or sample_noise)
    finally:
        torch.set_default_dtype(before)


def _both(name, folder, patch, text, noise):
    before = trained(loaded(f"{name}_original", originally(name), folder, patch), noise)
    return before, trained(loaded(f"{name}_adopted", text, folder, patch), noise)


def loaded(name, text, folder, patch):
    """A script as a module that workers can import, too."""
    (folder / f"{name}.py").write_text(text)
    patch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def trained(module, noise):
    if hasattr(module, "draw"):
        module.draw = noise
    losses, model = module.main()
    params = [model] if isinstance(model, np.ndarray) else [p.detach().flatten() for p in model.parameters()]
    return losses, torch.cat([torch.as_tensor(p) for p in params])


def sample_noise(like):
    """Numbers that look random, made of each sample alone: those of torch depend on who draws, and in which order."""
    flat = like.detach().flatten(1)
    return torch.sin(37 * flat[:, 20:26]) if flat.shape[1] > 26 else torch.sin(37 * flat)


def nothing(like):
    return 0 * sample_noise(like)


def same_numbers(before, after):
    (losses, params), (others, theirs) = before, after
    assert len(losses) > 3
    torch.testing.assert_close(others, losses, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(theirs, params, rtol=1e-3, atol=1e-5)
