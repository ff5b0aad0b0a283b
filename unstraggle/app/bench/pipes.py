"""The worker at the other end of a pipe. Apart, so that its process imports nothing else."""

from __future__ import annotations

from multiprocessing.connection import Connection


def answer(pipe: Connection, messages: int) -> None:
    """For every order so many messages of its size; an empty order is the end."""
    while order := pipe.recv_bytes():
        for _ in range(messages):
            pipe.send_bytes(order)
