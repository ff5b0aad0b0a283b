"""The README's table and docs/images/demo.png from what `make demo` wrote: `python docs/images/draw_demo.py out/demo`."""

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = "| scheme | ms per step | seconds to the target loss | speed-up | loss after 40 steps | exact gradients | MB per step |"
TABLE = re.compile(r"(<!-- the table of the demo.*?-->\n).*?(<!-- end of the table -->\n)", re.DOTALL)
QUIET = 1.2
"""Tasks that took longer than this times what they should say that the machine was busy."""


def table(about):
    """The rows of the demo in Markdown, with how they were measured."""
    lines = [HEAD, "|---|---|---|---|---|---|---|", *map(line, about["rows"]), ""]
    measured = f"Measured on {about['cores']} cores; ± is the 95 % interval over {about['repeats']} runs."
    if about["most_stretch"] > QUIET:
        longer = f"{about['most_stretch']:.1f} times as long as they were made to"
        measured += f" With one scheme tasks took {longer}: cores are few."
    return "\n".join([*lines, measured, ""])


def line(row):
    reached = "{:.1f} ± {:.1f}".format(*row["to_target"]) if row["to_target"] else "not in 40 steps"
    faster = "{:.1f} ± {:.1f} x".format(*row["speedup"]) if row["speedup"] else ""
    faster = "1.0 x" if row["scheme"] == "wait for all" else faster
    name = f"as advised: `{row['code']}`" if row["scheme"] == "as advised" else row["scheme"]
    cells = [name, f"{1e3 * row['wall'][0]:.0f}", reached, faster, "{:.3f} ± {:.3f}".format(*row["loss"])]
    cells += [f"{100 * row['exact']:.3g} %", f"{row['megabytes']:.2f}"]
    return f"| {' | '.join(cells)} |"


def main(folder):
    about = json.loads((folder / "summary.json").read_text())
    if about["stretch"] > QUIET:
        raise SystemExit(f"The machine was busy: tasks took {about['stretch']:.2f} times as long as they should.")
    readme = ROOT / "README.md"
    text, found = TABLE.subn(lambda place: f"{place[1]}\n{table(about)}\n{place[2]}", readme.read_text())
    assert found == 1, "README.md has no table of the demo"
    readme.write_text(text)
    shutil.copy(folder / "loss.png", ROOT / "docs/images/demo.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
