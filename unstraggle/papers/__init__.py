"""The papers' figures, regenerated. One module a paper; `unstraggle reproduce` finds figures here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .mmc_clustering import reproduce_figure1


class Figure(NamedTuple):
    """What a figure shows, and the function that writes it into a folder and returns its table."""

    title: str
    write: Callable[..., list[dict[str, Any]]]


FIGURES: Mapping[str, Figure] = {
    "mmc-fig1": Figure("completion time and load of multi-message codes, paper A figure 1", reproduce_figure1),
}

__all__ = ["FIGURES", "Figure"]
