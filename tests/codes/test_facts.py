"""The facts of a scheme stand in its file, and everything else is made from them."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from unstraggle import Invalid, codes
from unstraggle.codes.facts import facts_of, scheme


@pytest.mark.parametrize("module", [found.name for found in iter_modules(codes.__path__)])
def test_every_scheme_file_is_imported(module):
    inside = vars(import_module(f"unstraggle.codes.{module}")).values()
    names = [facts.name for value in inside if (facts := facts_of(value)) and value.__module__.endswith(f".{module}")]
    missing = [f"from .{module} import {name} as {name}" for name in names if name not in codes.SCHEMES]
    assert not missing, f"add to unstraggle/codes/__init__.py: {'; '.join(missing)}"


def test_all_schemes_are_public():
    doors = {"proportional"}  # gives a code of heterogeneity_aware
    assert set(codes.SCHEMES) == {name for name in codes.__all__ if name.islower()} - doors
    assert all(facts_of(getattr(codes, name)) is facts for name, facts in codes.SCHEMES.items())


def test_facts_of_another_scheme_are_refused():
    with pytest.raises(Invalid, match="an example that calls mine, such as mine"):
        scheme("one", "other(12)", sent="", decoded="", papers=())(lambda_named("mine"))
    with pytest.raises(Invalid, match="one of the groups one, several"):
        scheme("two", "mine(12)", sent="", decoded="", papers=())


def lambda_named(name):
    function = lambda n: None  # noqa: E731
    function.__name__ = name
    return function
