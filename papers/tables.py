"""Write the tables of papers/*/README.md from the results beside them: python papers/tables.py

A table stands between the lines <!-- table NAME --> and <!-- end -->. A test runs this and finds nothing to change.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BLOCK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
Rows = list[dict[str, Any]]


def about(name: str) -> dict[str, Any]:
    """A result, by its name."""
    found: dict[str, Any] = json.loads(next(HERE.glob(f"*/{name}.json")).read_text())
    return found


def rows_of(name: str) -> Rows:
    """Rows of a result, by its name."""
    found: Rows = about(name)["rows"]
    return found


def markdown(cells: Sequence[Sequence[str]]) -> str:
    head, *body = cells
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measured(row: dict[str, Any], key: str = "loss", sign: str = "", digits: int = 2) -> str:
    """Mean and half width; how many runs diverged, where more than a few are left out."""
    if row[key] is None:
        return ""
    half = row[f"{key}_half"]
    return f"{row[key]:{sign}.{digits}f} ± {half:.{digits}f}"


def lost(row: dict[str, Any]) -> str:
    return f" ({row['diverged']} of {row['runs']} diverged)" if row["diverged"] else ""


def runtimes(name: str) -> str:
    """Runtimes of paper B, a row per method."""
    rows = rows_of(name)
    key, *names = rows[0]
    return markdown([["", *(f"{row[key]:g}" for row in rows)], *([n, *(f"{row[n]:.3f}" for row in rows)] for n in names)])


def carry_over(_: str = "") -> str:
    """Paper B where rounds follow one another."""
    cells = [["", "free workers, exact", "carry-over"]]
    for row in rows_of("bcgc-carry"):
        cells.append([row["method"], f"{row['free, exact']:.3f}", measured(row, "carry-over")])
    return markdown(cells)


def figure1(_: str = "") -> str:
    """Figure 1 of paper A."""
    cells = [["scheme", "time", "95 % ±", "exact", "carry-over", "load", "cluster stop"]]
    for row in rows_of("mmc-fig1"):
        exact = "" if row["time_exact"] is None else f"{row['time_exact']:.4f}"
        ends = [f"{row['time_carried']:.3f}", f"{row['load']:.2f}", f"{row['load_cluster_stop']:.2f}"]
        cells.append([row["scheme"], f"{row['time']:.4f}", half(row), exact, *ends])
    return markdown(cells)


FRONT = {
    "fractional repetition": "fractional repetition",
    "correlated 9-10 x4 by rule": "correlated, order 9 (x4)",
    "correlated 7-10 x4 by rule": "correlated, order 7 (x4)",
    "GC-MMC-1": "GC-MMC-1: correlated, order 6 (x4)",
    "hybrid 1,10 x4 by rule": "hybrid 1,10 (x4)",
    "hybrid 1,7,10 x4 by span": "hybrid 1,7,10 (x4)",
    "hybrid 1,5,10 x4 by span": "hybrid 1,5,10 (x4)",
    "correlated 3-10 x4 by rule": "correlated, order 3 (x4)",
    "hybrid 1,4,7,10 x4 by span": "hybrid 1,4,7,10 (x4)",
    "hybrid 1,3,5,7,10 x4 by span": "hybrid 1,3,5,7,10 (x4)",
    "hybrid 1,2,3,5,7,9,10 x4 by span": "hybrid 1,2,3,5,7,9,10 (x4)",
    "UC-MMC": "UC-MMC",
    "correlated 1-10 x4 by rule": "UC-MMC (x4)",
}
"""Rows of paper A's front that its page shows."""


def front(_: str = "") -> str:
    """Some of the best clusters and orders of paper A."""
    known = {row["scheme"]: row for row in rows_of("mmc-front")}
    cells = [["scheme (clusters)", "recovered", "time", "95 % ±", "carry-over", "load", "cluster stop"]]
    for name, shown in FRONT.items():
        row = known[name]
        ends = [f"{row['load']:.2f}", f"{row['load_cluster_stop']:.2f}"]
        cells.append([shown, row["by"], f"{row['time']:.4f}", half(row), f"{row['time_carried']:.3f}", *ends])
    return markdown(cells)


def half(row: dict[str, Any]) -> str:
    """Half width of the interval of a time."""
    low, high = row["time_ci95"]
    return f"{(high - low) / 2:.4f}"


def training(panel: str) -> str:
    """A panel of figure 2 of paper C: one rate for all, and each scheme's own."""
    rows = [row for row in rows_of("cagc-fig2") if row["panel"] == panel]
    shared = {row["scheme"]: row for row in rows if row["rates"] == "shared"}
    rate = rows[0]["rate"]
    cells = [["scheme", f"loss, rate {rate:g}", "gap", "own rate", "loss, own rate", "gap", "accuracy"]]
    for own in (row for row in rows if row["rates"] == "tuned"):
        one, reference = shared[own["scheme"]], own["scheme"] == "proposed"
        left = ["diverges", ""] if one["diverged"] else [measured(one), "" if reference else measured(one, "gap", "+")]
        right = [f"{own['rate']:.2g}", measured(own) + lost(own), "" if reference else measured(own, "gap", "+")]
        cells.append([own["scheme"], *left, *right, "" if own["accuracy"] is None else f"{own['accuracy']:.3f}"])
    return markdown(cells)


PANELS3 = {
    "a": "a: budgets",
    "a2": "a2: parts of the design, B = 150",
    "t": "t: small transformer, B = 200 (added here)",
    "d": "d: psi up to 5, B = 150",
    "e": "e: error feedback, B = 150",
    "e2": "e2: memories as in live rounds, B = 150 (added here)",
    "s": "s: partitions sorted by label, B = 250 (added here)",
    "p": "p: as the authors' program, one rate for all (added here)",
}


def figure3(_: str = "") -> str:
    """Losses of figure 3 of paper C at own rates; of the authors' program at its one rate."""
    rows, cells = rows_of("cagc-fig3"), [["panel", "loss"]]
    for panel, title in PANELS3.items():
        kind = "shared" if panel == "p" else "tuned"
        mine = [row for row in rows if (row["panel"], row["rates"]) == (panel, kind)]
        if mine:
            cells.append([title, "; ".join(f"{row['scheme']} {measured(row)}{lost(row)}" for row in mine)])
    return markdown(cells)


def full_size(panel: str) -> str:
    """Figures 3b and 3c of paper C."""
    cells = [["scheme", "own rate", "loss", "loss less that of proposed", "diverged", "gigabits a step"]]
    for row in (row for row in rows_of("cagc-fig3") if row["panel"] == panel):
        gap = "" if row["scheme"] == "proposed" else measured(row, "gap", "+", 3)
        lost_runs = f"{row['diverged']} of {row['runs']}"
        cells.append(
            [row["scheme"], f"{row['rate']:.2g}", measured(row, digits=3), gap, lost_runs, f"{row['bits_a_step'] / 1e9:.3g}"]
        )
    return markdown(cells)


def detections(_: str = "") -> str:
    """Figure 4 of paper C."""
    rows = rows_of("cagc-fig4")
    known = {(row["scheme"], row["rates"]): row for row in rows}
    cells = [
        ["scheme", f"AP50, rate {rows[0]['rate']:g}", "scores", "own rate", "AP50, own rate", "less that of proposed", "scores"]
    ]
    for label in dict.fromkeys(row["scheme"] for row in rows):
        one, own = known[label, "shared"], known[label, "tuned"]
        gap = "" if label == "proposed" else measured(own, "gap", "+")
        right = [f"{own['rate']:.2g}", measured(own, "AP50"), gap, own["scores"]]
        cells.append([label, measured(one, "AP50"), one["scores"], *right])
    return markdown(cells)


def errors(size: str) -> str:
    """Exact errors of paper C's schemes: bits sent and error."""
    rows = [row for row in rows_of("cagc-error") if row["d"] == int(size)]
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    cells = [["B", *schemes]]
    for budget in dict.fromkeys(row["B"] for row in rows):
        mine = {row["scheme"]: row for row in rows if row["B"] == budget}
        cells.append([str(budget), *(f"{mine[s]['sent']:.1f}: {mine[s]['error']:.3g}" for s in schemes)])
    return markdown(cells)


def logistic(_: str = "") -> str:
    """Loss above SGD's least on logistic regression, in 1e-4."""
    rows = rows_of("cagc-logistic")
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    cells = [["B, scheme", *(f"rate {rate:g}" for rate in rates)]]
    for budget, label in dict.fromkeys((row["B"], row["scheme"]) for row in rows):
        mine = [row for row in rows if (row["B"], row["scheme"]) == (budget, label)]
        cells.append([f"{budget}, {label}", *(f"{1e4 * row['above']:.0f} ± {1e4 * row['half']:.0f}" for row in mine)])
    return markdown(cells)


def missed(_: str = "") -> str:
    """Deadlines that paper C's workers miss where steps follow one another."""
    cells = [["deadlines missed", "free workers, as in the paper", "carry-over"]]
    for row in rows_of("cagc-carry"):
        shares = [f"{100 * row[key]:.1f} ± {100 * row[f'{key}_half']:.1f} %" for key in ("free", "carry-over")]
        cells.append([f"n = {row['n']}, psi from 0.01 to {row['psi up to']:g}", *shares])
    return markdown(cells)


def claims(_: str = "") -> str:
    """What holds of paper B's sentences."""
    return markdown(
        [["what", "where", "value"], *([r["claim"], r["where"], f"{r['value']:.5g}"] for r in rows_of("bcgc-claims"))]
    )


TABLES: dict[str, Callable[[str], str]] = {
    "runtimes": runtimes,
    "claims": claims,
    "carry_over": carry_over,
    "figure1": figure1,
    "front": front,
    "training": training,
    "figure3": figure3,
    "full_size": full_size,
    "detections": detections,
    "errors": errors,
    "logistic": logistic,
    "missed": missed,
}


def filled(page: str) -> str:
    """A page with its tables as the results have them; NAME is the table's, with what it is given after a colon."""

    def table(match: re.Match[str]) -> str:
        name, _, given = match[2].partition(":")
        return match[1] + TABLES[name](given) + match[3]

    return BLOCK.sub(table, page)


def main() -> None:
    for path in sorted(HERE.glob("*/README.md")):
        path.write_text(filled(path.read_text()))
        print(f"{path.relative_to(HERE.parent)} written")


if __name__ == "__main__":
    main()
