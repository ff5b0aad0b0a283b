"""Watch: what the master changes in a model besides its trainable parameters, so that workers get it, too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from .buffers import COUNTER
from .tree import Tree

LOOKED_AT = 1024
"""Numbers of each tensor that are compared in every step, spread over it."""

SCALARS = (bool, int, float, str, type(None))
Print = tuple[int, int, Tensor]


class Watch:
    """Frozen parameters, buffers and plain attributes of a model (and a loss module) that are no longer as workers have them.

    EMA teachers and target networks are frozen parameters, temperatures and drop rates buffers or attributes. A change is
    noticed by the version of a tensor, its address, or LOOKED_AT of its numbers (`p.data.mul_(...)` leaves no other sign). What
    has changed once goes with every order from then on: workers may miss rounds, or start again. The mode of a module, training
    or evaluation, is not watched.

    roots: modules by name. but: names of tensors that travel with the parameters anyway. same: whether the last look found the
    modules and parameters of the one before, and the same ones trainable.
    """

    def __init__(self, roots: dict[str, nn.Module], but: set[str]) -> None:
        self._roots, self._but = roots, but
        self.trees = _trees(roots)
        self._mark, self.same = self._made_of(), True
        self._constants = constants(self.trees, but)
        self._prints = {name: fingerprint(tensor) for name, tensor in self._constants.items()}
        self._known: list[dict[str, Any]] = []
        self._last: dict[str, Any] = {}
        self._scalars = self._attributes()
        self.moved: set[str] = set()
        self.set: set[str] = set()

    def look(self) -> dict[str, Any]:
        """What differs from the start, by name: tensors and attributes. Empty where nothing does."""
        mark = self._made_of()
        self.same, self._mark = mark == self._mark, mark
        if not self.same:
            self._constants = constants(self.trees, self._but)
        now = self._constants
        self.moved |= {name for name, tensor in now.items() if name not in self.moved and self._differs(name, tensor)}
        scalars = self._attributes()
        if scalars is not self._scalars and scalars != self._scalars:
            self.set |= {name for name, value in scalars.items() if name not in self._scalars or self._scalars[name] != value}
        if not self.moved and not self.set:
            return {}
        found = {"tensors": {name: now[name] for name in sorted(self.moved & now.keys())}}
        found["attributes"] = {name: scalars[name] for name in sorted(self.set & scalars.keys())}
        return {kind: values for kind, values in found.items() if values}

    def _made_of(self) -> list[tuple[int, list[bool]]]:
        """The same while no module, parameter or buffer has come or gone, and the same ones are trainable."""
        for tree in self.trees.values():
            tree.look()
        return [(tree.walks, [p.requires_grad for p in tree.params().values()]) for tree in self.trees.values()]

    def _attributes(self) -> dict[str, Any]:
        """As `attributes`; the same object as at the last look where every module has those that it had then."""
        now = [*map(vars, chain.from_iterable(tree.modules().values() for tree in self.trees.values()))]
        if not _same(now, self._known):
            self._known = [*map(dict, now)]
            self._last = dict(attributes(self._roots))
        return self._last

    def compare(self, others: dict[str, nn.Module]) -> None:
        """Look at every number: whatever differs from other modules has changed."""
        theirs = constants(_trees(others), self._but)
        for name, tensor in constants(_trees(self._roots), self._but).items():
            if name not in theirs or not torch.equal(tensor.cpu(), theirs[name].cpu()):
                self.moved.add(name)

    def _differs(self, name: str, tensor: Tensor) -> bool:
        if name not in self._prints:
            return True
        version, address, numbers = self._prints[name]
        mine = fingerprint(tensor)
        return mine[:2] != (version, address) or not torch.equal(mine[2], numbers)


def _trees(roots: dict[str, nn.Module]) -> dict[str, Tree]:
    return {root: Tree(module) for root, module in roots.items()}


def fingerprint(tensor: Tensor) -> Print:
    """Version, address, and some of its numbers."""
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, len(flat) // LOOKED_AT)].clone()
    return 0 if tensor.is_inference() else tensor._version, tensor.data_ptr(), some


def constants(trees: dict[str, Tree], but: set[str]) -> dict[str, Tensor]:
    """Frozen parameters and buffers by name; not the counters of batch normalisation, which nothing reads."""
    found: dict[str, Tensor] = {}
    for root, tree in trees.items():
        found |= {f"{root}.{name}": p for name, p in tree.params().items() if not p.requires_grad}
        found |= {f"{root}.{name}": buffer for name, buffer in tree.buffers().items() if not name.endswith(COUNTER)}
    return {name: tensor for name, tensor in found.items() if name not in but}


def attributes(roots: dict[str, nn.Module]) -> Iterator[tuple[str, Any]]:
    """Numbers and texts that modules have as attributes."""
    for root, top in roots.items():
        for name, module in top.named_modules(prefix=root):
            for key, value in vars(module).items():
                if key != "training" and type(value) in SCALARS:
                    yield f"{name}.{key}", value


def _same(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> bool:
    """Whether attributes of modules are the same objects, or equal; tensors that were replaced cannot be compared like that."""
    try:
        return now == before
    except (RuntimeError, ValueError):
        return False


def put(roots: dict[str, nn.Module], found: dict[str, Any]) -> None:
    """On a worker: take over what the master has changed."""
    for name, value in found.get("tensors", {}).items():
        owner, key = owner_of(roots, name)
        tensor = getattr(owner, key)
        if tensor is None or tensor.shape != value.shape or tensor.dtype != value.dtype:
            new = value.to(next(iter(roots["model"].parameters())).device)
            setattr(owner, key, nn.Parameter(new, requires_grad=False) if key in owner._parameters else new)
        else:
            tensor.data.copy_(value)
    for name, value in found.get("attributes", {}).items():
        owner, key = owner_of(roots, name)
        setattr(owner, key, value)


def owner_of(roots: dict[str, nn.Module], name: str) -> tuple[nn.Module, str]:
    """The module that has something, and its name there."""
    root, _, path = name.partition(".")
    path, _, key = path.rpartition(".")
    return roots[root].get_submodule(path), key
