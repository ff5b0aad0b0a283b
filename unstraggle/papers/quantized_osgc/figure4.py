"""Figure 4 of [C]: what detectors that were trained with different schemes find in a picture that none of them has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...app.plots import COLOURS, _figure
from ...statistics import mean_and_half
from ..files import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .training import Panel, Run

Progress = Callable[[str, int, int], None]

LABELS = ("SGD", "IS-SGD", "BGC", "EHD", "OD", "SGC", "OSGC", "proposed")
SEEDS, TUNING = 4, 1
RATE = 0.01
"""Of Adam, which all schemes share: ten times that of figure 2, at which a detector learns next to nothing in so few steps."""

KINDS = {"shared": "one rate for all", "tuned": "each at its own best rate"}


def reproduce_figure4(
    out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None, quick: bool = False, coco: Path | None = None
) -> list[dict[str, Any]]:
    """Write cagc-fig4.png, .pdf, .csv and .json: on scenes of digits, or on COCO's pictures in the folder `coco`."""
    from .figures import studies
    from .training import Panel

    panel = Panel(problem=f"coco:{coco}" if coco else "scenes", n=50, each=4, optimizer="adam", rate=RATE, steps=200, every=10)
    panel = replace(panel, n=10, steps=20) if quick else panel
    seeds, tuning = (2, 1) if quick else (SEEDS, TUNING)
    found = studies([(label, panel, label) for label in LABELS], seeds, tuning, seed, progress)
    rows = [_row(label, kind, panel, found) for kind in KINDS for label in LABELS]
    shown = picture(panel, found)
    about = {
        "repeat": f"unstraggle reproduce cagc-fig4{' --quick' if quick else ''}{f' --coco {coco}' if coco else ''}"
        f"{f' --seed {seed}' if seed else ''}",
        "setting": f"n = k = {panel.n}, B = {panel.each * panel.n}, {panel.steps} steps of Adam, {seeds} runs per scheme and "
        f"rate, on the same stragglers, batches and first parameters; rates chosen on {tuning} other "
        f"seed{'s' * (tuning > 1)}; AP50 on held-out pictures; 95 % intervals by Student's t; the picture is the first "
        "held-out one, the detectors those of the first seed",
        "processor_minutes": round(sum(study["seconds"] for study in found.values()) / 60, 1),
        "picture": shown,
    }
    save(out, "cagc-fig4", rows, drawn(shown, rows), about)
    return rows


def picture(panel: Panel, found: dict[tuple[Panel, str], Any]) -> dict[str, Any]:
    """The first held-out picture, its objects, and what the detector of each scheme finds there."""
    from .scenes import pictures

    data = pictures(panel.problem, held_out=True)
    objects = [_said(box, data.names[label], None) for box, label in zip(data.boxes[0], data.labels[0], strict=True)]
    image = data.images[0].permute(1, 2, 0).numpy()
    spread = (image - image.min()) / max(float(image.max() - image.min()), 1e-9)
    seen = {kind: {label: _seen(panel, found[panel, label][kind][0]) for label in LABELS} for kind in KINDS}
    return {"pixels": (255 * spread).round().astype(int).tolist(), "objects": objects, "found": seen, "rate": panel.rate}


def _seen(panel: Panel, run: Run) -> list[dict[str, Any]]:
    """Detections in that picture that are sure enough to be shown."""
    from .detection import SHOWN
    from .scenes import detection, pictures, seen

    data = pictures(panel.problem, held_out=True)
    if run.params is None:
        return []
    one = seen(detection(panel.problem, panel.n, 0), run.params, data.images[:1])[0]
    several = zip(one.boxes, one.labels, one.scores, strict=True)
    return [_said(box, data.names[label], float(score)) for box, label, score in several if score >= SHOWN]


def _said(box: Any, name: str, score: float | None) -> dict[str, Any]:
    return {"box": [round(float(side), 1) for side in box], "name": name, "score": None if score is None else round(score, 2)}


def _row(label: str, kind: str, panel: Panel, found: dict[tuple[Panel, str], Any]) -> dict[str, Any]:
    """Precision and loss of a scheme, and the scores with which the picture's objects are found: 0 for those that are not."""
    from .training import CAP

    study, best = found[panel, label], found[panel, "proposed"]
    right, rival = (np.nan_to_num([run.accuracy for run in some[kind]]) for some in (study, best))
    (mean, half), (gap, gap_half) = mean_and_half(right), mean_and_half(right - rival)
    final = np.array([run.final for run in study[kind]])
    return {
        "scheme": label,
        "rates": kind,
        "rate": panel.rate if kind == "shared" else study["rate"],
        "AP50": round(float(mean), 4),
        "AP50_half": round(float(half), 4),
        "gap": round(float(gap), 4),
        "gap_half": round(float(gap_half), 4),
        "loss": round(float(final.mean()), 4),
        "diverged": int((final >= CAP).sum()),
        "runs": len(final),
        "scores": " ".join(f"{score:.2f}" for score in _scores(panel, study[kind][0])),
        "tried": " ".join(f"{rate:g}:{tried:.3g}" for rate, tried in sorted(study["tried"].items())),
    }


def _scores(panel: Panel, run: Run) -> list[float]:
    """Of the picture's objects."""
    from .detection import scores_of
    from .scenes import detection, pictures, seen

    data = pictures(panel.problem, held_out=True)
    if run.params is None:
        return [0.0] * len(data.labels[0])
    one = seen(detection(panel.problem, panel.n, 0), run.params, data.images[:1])[0]
    return scores_of(one, data.boxes[0], data.labels[0])


def drawn(shown: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Figure:
    """The picture once for each scheme, with what was found in it: above at one rate for all, below at each scheme's own."""
    figure = _figure(1.45 * (1 + len(LABELS)), 4.0)
    grid = figure.subplots(len(KINDS), 1 + len(LABELS))
    known = {(row["scheme"], row["rates"]): row for row in rows}
    for number, (line, (kind, name)) in enumerate(zip(grid, KINDS.items(), strict=True)):
        _draw(line[0], shown, shown["objects"], "objects" if not number else "")
        line[0].set_ylabel(name + (f", {shown['rate']:g}" if kind == "shared" else ""), fontsize=8)
        for axes, label in zip(line[1:], LABELS, strict=True):
            row = known[label, kind]
            _draw(axes, shown, shown["found"][kind][label], label if not number else "")
            axes.set_xlabel(f"AP50 {row['AP50']:.2f} ± {row['AP50_half']:.2f}", fontsize=8)
    return figure


def _draw(axes: Axes, shown: dict[str, Any], objects: Sequence[dict[str, Any]], title: str) -> None:
    pixels = np.array(shown["pixels"], dtype=np.uint8)
    axes.imshow(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, cmap="gray", vmin=0, vmax=255)
    axes.set(xticks=[], yticks=[], xlim=(-0.5, pixels.shape[1] - 0.5), ylim=(pixels.shape[0] - 0.5, -0.5))
    taken: list[tuple[float, float]] = []
    for one in objects:
        left, top, right, bottom = one["box"]
        axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], color=COLOURS[1], linewidth=1.4)
        said = one["name"] if one["score"] is None else f"{one['name']}: {one['score']:.2f}"
        taken.append(_place(one["box"], taken, pixels.shape[0] / 32))
        corner: dict[str, Any] = dict(zip("xy", taken[-1], strict=True)) | {"clip_on": True, "va": "bottom", "fontsize": 7}
        axes.text(s=said, color="black", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6}, **corner)
    axes.set_title(title, fontsize=9)


def _place(box: Sequence[float], taken: Sequence[tuple[float, float]], scale: float) -> tuple[float, float]:
    """Left and lower end of a label in the picture: at a corner of its box, or beside it, where no other is. scale: side / 32.

    >>> _place([2, 8, 12, 20], [], 1.0), _place([2, 8, 12, 20], [(1.0, 9.0)], 1.0)
    ((2.0, 8.0), (2.0, 20.0))
    """
    wide, high, side = 9.5 * scale, 3.2 * scale, 32 * scale
    left, top, right, bottom = box
    lines = (top, bottom, (top + bottom) / 2, *np.arange(high, side, high))
    corners = [(x, y) for y in lines for x in (left, right - wide)]
    inside = [(min(max(float(x), 0.0), side - wide), min(max(float(y), high), side - 1)) for x, y in corners]
    free = (at for at in inside if all(abs(at[0] - x) >= wide or abs(at[1] - y) >= high for x, y in taken))
    return next(free, inside[0])


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Precision for people, and the scores with which the picture's objects were found."""
    cells = [["AP50", "one rate", "scores", "own rate", "gap", "scores", "at rate"]]
    known = {(row["scheme"], row["rates"]): row for row in rows}
    for label in dict.fromkeys(row["scheme"] for row in rows):
        left, right = known[label, "shared"], known[label, "tuned"]
        gap = f"{right['gap']:+.2f} ±{right['gap_half']:.2f}"
        cells.append([label, _cell(left), left["scores"], _cell(right), gap, right["scores"], f"{right['rate']:.2g}"])
    return cells


def _cell(row: dict[str, Any]) -> str:
    return f"{row['AP50']:.2f} ±{row['AP50_half']:.2f}"
