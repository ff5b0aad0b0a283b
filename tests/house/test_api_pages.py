"""Every public name stands in the API page: what its directives take from the modules, read without Sphinx."""

import importlib
import re
from types import ModuleType

import pytest

import unstraggle

from ..pages import ROOT
from ..torch.small_transformers import unless_there

DIRECTIVE = re.compile(r"^\.\. auto(module|class|function|data):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)
PACKAGES = (*unstraggle.MODULES, "diagnosis", "encoders")
PUBLIC = ("unstraggle", *(f"unstraggle.{name}" for name in PACKAGES))


def documented():
    """{(module, name)} of what the page shows, where the name is defined."""
    shown = set()
    for kind, target, lines in DIRECTIVE.findall((ROOT / "docs/api.md").read_text()):
        if kind != "module":
            module, _, name = target.rpartition(".")
            shown.add(home(importlib.import_module(module), name))
            continue
        options = dict(re.findall(r":([\w-]+): ?(.*)", lines))
        if "members" in options:
            module = importlib.import_module(target)
            names = re.findall(r"\w+", options["members"]) or members(module, "imported-members" in options)
            shown |= {home(module, name) for name in names}
    return shown


def members(module, imported):
    """What `:members:` shows: documented names of `__all__`, or those that do not begin with an underscore."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    own = [name for name in names if getattr(getattr(module, name), "__module__", module.__name__) == module.__name__]
    return [name for name in (names if imported else own) if getattr(getattr(module, name), "__doc__", None)]


def home(module, name):
    found = getattr(module, name)
    return getattr(found, "__module__", module.__name__), getattr(found, "__name__", name)


@pytest.fixture(autouse=True)
def transformers(monkeypatch):
    with unless_there(monkeypatch):
        yield


def test_every_public_name_is_in_the_page():
    shown, missing = documented(), []
    assert len(shown) > 150
    for package in PUBLIC:
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
        assert len(names) > 3
        missing += [f"{package}.{name}" for name in names if home(module, name) not in shown]
    assert missing == []
