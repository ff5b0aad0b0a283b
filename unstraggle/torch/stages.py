"""Staged: one backward pass in several sittings, so that a block of parameters does not redo the blocks before it.

The graph that autograd records is cut where no way leads from one cut edge to another. A sitting runs from the gradients that
wait at the last cut to the parameters asked for and to the next cut, and the gradients found there wait for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import GradientEdge

from .layout import Layout

NEVER = 1 << 60
"""Stage of a node from which no trainable parameter is reached."""

Edge = tuple[Any, int]


class Graph:
    """The graph behind a loss. stage: for each node the first parameter, in backward order, that its gradient flows to."""

    def __init__(self, loss: Tensor, params: Sequence[Tensor]) -> None:
        self.root = loss.grad_fn
        number = {id(p): place for place, p in enumerate(params)}
        self.stage: dict[Any, int] = {}
        self.crossing: list[tuple[int, int, Edge]] = []
        for node in _leaves_first(self.root):
            onward = [edge for edge in node.next_functions if edge[0] is not None]
            own = number.get(id(node.variable), NEVER) if hasattr(node, "variable") else NEVER
            first = self.stage[node] = min([own, *(self.stage[child] for child, _ in onward)])
            self.crossing += [(first, self.stage[c], (c, nr)) for c, nr in onward if first < self.stage[c] < NEVER]

    def cut(self, begin: int, end: int) -> list[Edge]:
        """Edges from stages begin..end - 1 to later ones."""
        return list(dict.fromkeys(edge for here, there, edge in self.crossing if begin <= here < end <= there))

    def can_cut(self, end: int) -> bool:
        """Whether no edge of the cut leads to another, so that gradients can wait there."""
        nodes = {node for node, _ in self.cut(0, end)}
        return len(nodes) < 2 or not any(other in nodes for node in nodes for other in _beyond(node, nodes))


def _leaves_first(root: Any) -> Iterator[Any]:
    """Every node of a graph after those that it leads to."""
    seen, todo = {root}, [(root, iter(root.next_functions))]
    while todo:
        node, onward = todo[-1]
        child = next((child for child, _ in onward if child is not None and child not in seen), None)
        if child is None:
            todo.pop()
            yield node
        else:
            seen.add(child)
            todo.append((child, iter(child.next_functions)))


def _beyond(start: Any, stop: set[Any]) -> Iterator[Any]:
    """Nodes that a node leads to, not further than those of `stop`."""
    seen, todo = {start}, [start]
    while todo:
        for child, _ in todo.pop().next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                yield child
                if child not in stop:
                    todo.append(child)


class Staged:
    """The gradient of one partition, block by block; each block frees the part of the graph that it went through.

    params: in backward order. again: makes this anew, for a block that was passed already.
    """

    def __init__(
        self,
        loss: Tensor | None,
        head: Tensor,
        params: Sequence[Tensor],
        layout: Layout,
        again: Callable[[], Staged] | None = None,
    ) -> None:
        self._head, self._params, self._again = head, params, again
        self._layout, self._places = layout, [layout.places[name] for name in layout.names]
        self._graph = None if loss is None or loss.grad_fn is None else Graph(loss, params)
        self._waiting: dict[Edge, Tensor] = {}
        if self._graph is not None and loss is not None:
            self._waiting[self._graph.root, 0] = torch.ones_like(loss)
        self._reached = 0
        self._done: dict[int, Tensor] = {}

    def take(self, where: slice) -> NDArray[Any]:
        """The coordinates `where` of the head and the gradient."""
        out = torch.zeros(where.stop - where.start, dtype=self._head.dtype, device=self._head.device)
        head = self._head[where]
        out[: len(head)] = head
        wanted = [place for place, at in enumerate(self._places) if at.start < where.stop and at.stop > where.start]
        if wanted:
            self._compute(wanted)
        for place in wanted:
            at = self._places[place]
            begin, end = max(at.start, where.start), min(at.stop, where.stop)
            if place in self._done:
                out[begin - where.start : end - where.start] = self._done[place][begin - at.start : end - at.start]
                if end == at.stop:
                    del self._done[place]
        return out.cpu().numpy()

    def advance(self, wanted: Sequence[int], end: int) -> None:
        """Go on to the cut before parameter `end`, with the gradients of the parameters wanted."""
        graph = self._graph
        if graph is None:
            return
        begin, self._reached = self._reached, end
        cut = graph.cut(begin, end)
        begun = [edge for edge in self._waiting if graph.stage[edge[0]] < end]
        values = [self._waiting.pop(edge) for edge in begun]
        inputs: list[Any] = [self._params[place] for place in wanted] + [GradientEdge(*edge) for edge in cut]
        if not begun or not inputs:
            return
        found = torch.autograd.grad([GradientEdge(*edge) for edge in begun], inputs, values, allow_unused=True)
        for place, grad in zip(wanted, found[: len(wanted)], strict=True):
            if grad is not None:
                self._done[place] = self._layout.flattened(self._layout.names[place], grad)
        for edge, grad in zip(cut, found[len(wanted) :], strict=True):
            if grad is not None:
                self._waiting[edge] = grad  # whole: what comes to it later would come by another edge of this cut

    def _compute(self, wanted: list[int]) -> None:
        missing = [place for place in wanted if place not in self._done]
        if missing and missing[0] < self._reached:
            assert self._again is not None
            self.__dict__.update(self._again().__dict__)
            missing = wanted
        if not missing:
            return
        end = missing[-1] + 1
        while self._graph is not None and end < len(self._params) and not self._graph.can_cut(end):
            end += 1  # further than asked, to where gradients can wait; what is found on the way is kept
        self.advance([*missing, *range(missing[-1] + 1, end)], end)


def backward_order(loss: Tensor, params: dict[str, Tensor]) -> tuple[list[str], set[str]]:
    """Names of the parameters in the order in which the backward pass completes their gradients, and those it never reaches.

    A weight that is used in several places comes where its last use is done.
    """
    order: list[str] = []
    hooks: list[Any] = []
    for name, p in params.items():
        hook = p.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))  # type: ignore[no-untyped-call]
        hooks.append(hook)
    loss.backward()  # type: ignore[no-untyped-call]
    for hook, p in zip(hooks, params.values(), strict=True):
        hook.remove()
        p.grad = None
    unused = set(params) - set(order)
    return order + [name for name in reversed(params) if name in unused], unused


def joints(loss: Tensor, params: dict[str, Tensor]) -> list[int]:
    """After how many parameters, in backward order, the backward pass can pause: between modules, at a valid cut.

    The last is always len(params). A network whose skip connections all overlap, as a U-Net's do, has few.
    """
    graph, names = Graph(loss, list(params.values())), list(params)
    owners = [name.rpartition(".")[0] for name in names]
    ends = [end for end in range(1, len(names)) if owners[end - 1] != owners[end] and graph.can_cut(end)]
    return [*ends, len(names)]
