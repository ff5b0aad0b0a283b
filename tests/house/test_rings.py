"""The rings of the house: imports go inwards only, and no two modules need each other to be imported."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import unstraggle

ROOT = Path(unstraggle.__file__).parent
RINGS = [
    {"errors", "checks", "doors", "randomness", "threads", "addresses", "blocks", "statistics"},
    {"quantizers"},
    {"scheme", "encoders", "codes"},
    {"problems", "trace", "runtime", "engines"},
    {"latency", "study", "plan", "diagnosis", "adaptive"},
    {"torch"},
    {"testing"},
    {"app"},
    {"papers"},
]
"""From the inside out; docs/house.md draws them."""
ALLOWED = {("app.cli.reproduce", "papers")}
"""The command `reproduce` alone knows the figures."""


def test_imports_go_inwards_only():
    ring = {name: number for number, names in enumerate(RINGS) for name in names}
    edges = [(module, target) for module in modules() for target in imported(module)]
    outwards = {(m, t.split(".")[0]) for m, t in edges if t and ring[top(m)] < ring[top(t)]}
    assert outwards - ALLOWED == set()


def test_no_module_needs_itself_to_be_imported():
    graph = {module: imported(module, at_once=True) - {module, ""} for module in modules()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert len(order) >= len(graph) > 200


def top(module):
    return module.split(".")[0]


@cache
def modules():
    """All modules by their dotted name below the package, but those that only hand names out or start the program."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in ROOT.rglob("*.py")}
    return names - {"__init__", "__main__"}


def imported(module, at_once=False):
    """The modules of this package that a module imports; at_once: as soon as it is imported itself."""
    path = ROOT.joinpath(*module.split("."))
    package = path.is_dir()
    tree = ast.parse((path / "__init__.py" if package else path.with_suffix(".py")).read_text())
    inside = module.split(".") if package else module.split(".")[:-1]
    known, found = modules(), set()
    for node in statements(tree, at_once):
        base = inside[: len(inside) - node.level + 1] + (node.module.split(".") if node.module else [])
        for name in node.names:
            longer = ".".join([*base, name.name])
            found.add(longer if longer in known else ".".join(base))
    return found


def statements(tree, at_once):
    """The relative imports of a module, without those for type checkers, and without those inside functions if at_once."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif not (at_once and isinstance(node, ast.FunctionDef)):
            yield from statements(node, at_once)
