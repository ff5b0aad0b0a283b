"""Program: what one worker computes and sends in a round, as the code's tables say it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..quantizers.base import Codec
from ..quantizers.plain import PLAIN


@dataclass(frozen=True)
class Outgoing:
    """One message of a worker: the sum of coef[i] times block pairs[i][1] of the partial gradient of partition pairs[i][0].

    block: the one whose length it has; as a rule all pairs are of it. codec: makes the payload's bytes. It is this message's
    own, and may remember what it encoded.
    """

    index: int
    after: int
    block: int
    pairs: tuple[tuple[int, int], ...]
    coef: tuple[complex, ...]
    codec: Codec = PLAIN


@dataclass(frozen=True)
class Program:
    """A worker's share of a code: (partition, block) tasks in order, and messages with the task count that frees them.

    work: of each task, as in `Tasks`; empty: all alike. handed: the rows of the code's table, where tasks are handed out and
    these are what the worker may do; else empty.
    """

    worker: int
    tasks: tuple[tuple[int, int], ...]
    messages: tuple[Outgoing, ...]
    work: tuple[float, ...] = ()
    handed: tuple[int, ...] = ()

    @cached_property
    def place(self) -> dict[int, int]:
        """The number of each message in this program, by its index in the code."""
        return {message.index: number for number, message in enumerate(self.messages)}

    @cached_property
    def steps(self) -> tuple[tuple[Any, ...], ...]:
        """For each task: the task, the messages that use it, and those that are due after it."""
        return tuple(zip(self.tasks, self.uses, self.due, strict=True))

    @cached_property
    def together(self) -> tuple[tuple[Any, ...], ...]:
        """As `steps`, with neighbours as one where all go into one message, with one coefficient, and nothing is due between:
        tasks (partitions of one block), the messages that use them, and those that are due after them."""
        found: list[tuple[list[tuple[int, int]], Any, Any]] = []
        for task, uses, due in self.steps:
            before = found[-1] if found else None
            if before and len(uses) == 1 and before[1] == uses and not before[2] and before[0][0][1] == task[1]:
                found[-1] = [*before[0], task], uses, due
            else:
                found.append(([task], uses, due))
        return tuple((tuple(tasks), uses, due) for tasks, uses, due in found)

    @cached_property
    def due(self) -> tuple[tuple[Outgoing, ...], ...]:
        """The messages to send after each task."""
        steps = range(1, len(self.tasks) + 1)
        return tuple(tuple(m for m in self.messages if m.after == step) for step in steps)

    @cached_property
    def uses(self) -> tuple[tuple[tuple[int, complex], ...], ...]:
        """The messages that each task's partial gradient goes into, with its coefficients; a task done twice counts once."""
        table: dict[tuple[int, int], list[tuple[int, complex]]] = {task: [] for task in self.tasks}
        for message in self.messages:
            for pair, coef in zip(message.pairs, message.coef, strict=True):
                table[pair].append((message.index, coef))
        return tuple(tuple(table.pop(task, ())) for task in self.tasks)

    @cached_property
    def plain(self) -> frozenset[int]:
        """Messages that are one partial gradient as it is."""
        return frozenset(m.index for m in self.messages if len(m.pairs) == 1 and m.coef[0] == 1)

    @cached_property
    def last_use(self) -> dict[tuple[int, int], int]:
        """The task count after which a partial gradient is needed no more."""
        uses: dict[tuple[int, int], int] = {}
        for message in self.messages:
            for pair in message.pairs:
                uses[pair] = max(message.after, uses.get(pair, 0))
        return uses

    @cached_property
    def waiting(self) -> tuple[int, int]:
        """Most vectors that wait between two tasks: sums of messages that have begun, or partial gradients still needed."""
        begun: dict[int, int] = {}
        for step, uses in enumerate(self.uses, 1):
            for index, _ in uses:
                begun.setdefault(index, step)
        first = {task: step for step, task in reversed(list(enumerate(self.tasks, 1)))}
        sums = [(begun[m.index], m.after) for m in self.messages]
        partials = [(first[task], last) for task, last in self.last_use.items()]
        return _most(sums, len(self.tasks)), _most(partials, len(self.tasks))

    @cached_property
    def folds(self) -> bool:
        """Whether partial gradients are added to their messages at once. Almost always that needs the least memory."""
        return self.waiting[0] <= self.waiting[1]


def packed(program: Program) -> bytes:
    """A program of plain messages as JSON, for those that change from round to round: short, and safe to read."""
    messages = [
        [m.index, m.after, m.block, m.pairs, [[complex(c).real, complex(c).imag] for c in m.coef]] for m in program.messages
    ]
    words = [program.worker, program.tasks, messages, program.work, any(np.iscomplexobj(m.coef) for m in program.messages)]
    return json.dumps(words).encode()


def unpacked(data: bytes) -> Program:
    """The program that was packed."""
    worker, tasks, messages, work, twisted = json.loads(data)
    made = []
    for index, after, block, pairs, coef in messages:
        numbers = tuple(complex(*c) if twisted else c[0] for c in coef)
        made.append(Outgoing(index, after, block, tuple(map(tuple, pairs)), numbers))
    return Program(worker, tuple(map(tuple, tasks)), tuple(made), tuple(work))


def _most(spans: list[tuple[int, int]], steps: int) -> int:
    """How many of the spans first <= step < last overlap at most."""
    return max((sum(first <= step < last for first, last in spans) for step in range(1, steps + 1)), default=0)
