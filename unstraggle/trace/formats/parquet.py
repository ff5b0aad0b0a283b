"""Operation timings of training jobs, as in ByteDance's StragglerAnalysis: a row per operation. Needs pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import Invalid
from .npz import over_stages

COLUMNS = ("step", "dp_rank", "stage", "mb_id", "optype", "duration")
COMPUTE = ("forward-compute", "backward-compute")


def load(path: Path, stage: int | None) -> dict[str, Any]:
    """Forward and backward seconds of every micro-batch, as arguments of `trace.from_seconds`.

    A round is a step, a worker a data-parallel rank, a task a micro-batch; the micro-batches of a step are together one unit of
    work. Times are summed over the stages of the pipeline, or those of one stage. Sending and waiting are left out, so that the
    tasks stand one after the other as if the pipeline had no gaps.
    """
    table = _table(path)
    rows = np.isin(table["optype"], COMPUTE)
    if not rows.any():
        raise Invalid(f"{path} has no operations {' or '.join(COMPUTE)} in its column optype. Give a trace with compute times.")
    places = [np.unique(table[name][rows], return_inverse=True) for name in ("step", "dp_rank", "stage", "mb_id")]
    shape = tuple(len(names) for names, _ in places)
    cells = np.ravel_multi_index([index for _, index in places], shape)
    size = int(np.prod(shape))
    seconds = np.asarray(np.bincount(cells, weights=table["duration"][rows], minlength=size), dtype=float).reshape(shape)
    if (np.bincount(cells, minlength=size) == 0).any():
        raise Invalid(f"{path} lacks compute times for some step, rank, stage and micro-batch. Leave incomplete steps out.")
    meta = {"source": path.name, "stage": "sum" if stage is None else stage}
    return {"seconds": over_stages(seconds, stage, path), "work": 1 / shape[3], "numbers": places[0][0], "meta": meta}


def _table(path: Path) -> dict[str, Any]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise Invalid(f"Parquet files need pyarrow, to read {path}. Install it: pip install 'unstraggle[traces]'") from None
    try:
        file = parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise Invalid(f"{path} cannot be read as a parquet file: {error}") from None
    if missing := [name for name in COLUMNS if name not in file.schema_arrow.names]:
        raise Invalid(f"{path} needs the columns {', '.join(COLUMNS)}, but lacks {', '.join(missing)}.")
    table = file.read(columns=list(COLUMNS))
    return {name: table[name].to_numpy() for name in COLUMNS}
