"""Traces as an array of an npz file: seconds (rounds, workers), or with two more axes, stages of a pipeline and tasks."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import Invalid


def load(path: Path, key: str | None, stage: int | None) -> dict[str, Any]:
    """Seconds of the tasks, summed over the stages of a pipeline or of one of them, as arguments of `trace.from_seconds`.

    The tasks of a worker are together one unit of work. For keys JOB and JOB_..., the array JOB_steps says what the rounds are
    called.
    """
    arrays = _arrays(path)
    known = [name for name, array in arrays.items() if array.ndim > 1]
    if key is None and len(known) == 1:
        key = known[0]
    if key not in known:
        raise Invalid(f"{path} has times under the keys {', '.join(known) or '(none)'}, but got key={key!r}. Give one of them.")
    seconds = over_stages(np.asarray(arrays[key], dtype=float), stage, path)
    steps = arrays.get(f"{key.split('_')[0]}_steps")
    meta = {"source": path.name, "key": key, "stage": "sum" if stage is None else stage}
    return {"seconds": seconds, "work": 1 / seconds.shape[2], "numbers": steps, "meta": meta}


def over_stages(seconds: NDArray[np.float64], stage: int | None, path: Path) -> NDArray[np.float64]:
    """(rounds, workers, tasks) from (rounds, workers[, stages[, tasks]])."""
    if seconds.ndim > 4:
        raise Invalid(f"{path}: times have at most 4 axes (rounds, workers, stages, tasks), but got shape {seconds.shape}.")
    full: NDArray[np.float64] = seconds.reshape([*seconds.shape, 1, 1][:4])
    if stage is None:
        return np.asarray(full.sum(axis=2))
    if not 0 <= stage < full.shape[2]:
        raise Invalid(f"{path} has stages 0 to {full.shape[2] - 1}, but got stage={stage}.")
    return np.asarray(full[:, :, stage])


def _arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise Invalid(f"{path} cannot be read as an npz file: {error}. Write it with numpy.savez.") from None
