"""The papers' figures, regenerated. One folder per paper; `unstraggle reproduce` finds figures here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .block_coordinate import carry_over as block_coordinate_carry
from .block_coordinate import claims as block_coordinate_claims
from .block_coordinate import example as block_coordinate_example
from .block_coordinate import figures as block_coordinate
from .mmc_clustering import claims as mmc_claims
from .mmc_clustering import figure1 as mmc_clustering
from .mmc_clustering import front as mmc_front
from .quantized_osgc import errors as quantized_osgc_errors
from .quantized_osgc import figure1 as quantized_osgc
from .quantized_osgc import figure4 as quantized_osgc_figure4
from .quantized_osgc import figures as quantized_osgc_figures
from .quantized_osgc import logistic as quantized_osgc_logistic
from .quantized_osgc import missed as quantized_osgc_missed


class Figure(NamedTuple):
    """What a figure shows, the function that writes it into a folder and returns its rows, how these become a table.

    has_quick, has_full: whether the function takes quick=True, or full=True for as many runs as the results in papers/ have.
    has_coco: whether it takes a folder coco= with COCO's pictures.
    """

    title: str
    write: Callable[..., list[dict[str, Any]]]
    table: Callable[[list[dict[str, Any]]], list[list[str]]]
    has_quick: bool = False
    has_full: bool = False
    has_coco: bool = False


FIGURES: Mapping[str, Figure] = {
    "mmc-fig1": Figure(
        "completion time and load of multi-message codes, paper A figure 1",
        mmc_clustering.reproduce_figure1,
        mmc_clustering.table,
    ),
    "mmc-front": Figure(
        "time against messages for the best clusters and orders, beyond paper A",
        mmc_front.reproduce_front,
        mmc_clustering.table,
    ),
    "mmc-claims": Figure(
        "other joint laws, the master's link, rule and span, beyond paper A's figure",
        mmc_claims.reproduce_claims,
        mmc_claims.table,
    ),
    "bcgc-fig1": Figure(
        "an example of four workers, paper B figure 1",
        block_coordinate_example.reproduce_figure1,
        block_coordinate_example.table,
    ),
    "bcgc-fig2": Figure(
        "redundancies and block sizes, paper B figure 2",
        block_coordinate_example.reproduce_figure2,
        block_coordinate_example.table,
    ),
    "bcgc-fig3": Figure(
        "optimal block sizes, paper B figure 3", block_coordinate.reproduce_figure3, block_coordinate.sizes_table
    ),
    "bcgc-fig4a": Figure(
        "runtime (1e7) against workers, paper B figure 4a", block_coordinate.reproduce_figure4a, block_coordinate.runtimes_table
    ),
    "bcgc-fig4b": Figure(
        "runtime (1e7) against the rate, paper B figure 4b",
        block_coordinate.reproduce_figure4b,
        block_coordinate.runtimes_table,
    ),
    "bcgc-claims": Figure(
        "savings, bounds and equation 8 in paper B's own setting, beyond its figures",
        block_coordinate_claims.reproduce_claims,
        block_coordinate_claims.table,
    ),
    "bcgc-carry": Figure(
        "runtime (1e7) where rounds follow one another, beyond paper B",
        block_coordinate_carry.reproduce_carry_over,
        block_coordinate_carry.table,
    ),
    "cagc-fig1": Figure(
        "objective of bit allocations against the budget, paper C figure 1",
        quantized_osgc.reproduce_figure1,
        quantized_osgc.table,
        has_quick=True,
    ),
    "cagc-fig2": Figure(
        "training loss of nine schemes, paper C figure 2",
        quantized_osgc_figures.reproduce_figure2,
        quantized_osgc_figures.table,
        has_quick=True,
        has_full=True,
    ),
    "cagc-fig3": Figure(
        "ablation, heterogeneity, error feedback and bits sent, paper C figure 3",
        quantized_osgc_figures.reproduce_figure3,
        quantized_osgc_figures.table,
        has_quick=True,
        has_full=True,
    ),
    "cagc-fig4": Figure(
        "detections on a picture, paper C figure 4; on COCO's with --coco",
        quantized_osgc_figure4.reproduce_figure4,
        quantized_osgc_figure4.table,
        has_quick=True,
        has_coco=True,
    ),
    "cagc-error": Figure(
        "exact error against bits sent, beyond paper C",
        quantized_osgc_errors.reproduce_errors,
        quantized_osgc_errors.table,
        has_quick=True,
    ),
    "cagc-logistic": Figure(
        "loss against the learning rate on logistic regression, beyond paper C",
        quantized_osgc_logistic.reproduce_logistic,
        quantized_osgc_logistic.table,
        has_quick=True,
    ),
    "cagc-carry": Figure(
        "deadlines missed where steps follow one another, beyond paper C",
        quantized_osgc_missed.reproduce_missed,
        quantized_osgc_missed.table,
    ),
}

__all__ = ["FIGURES", "Figure"]
