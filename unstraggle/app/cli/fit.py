"""unstraggle fit."""

from __future__ import annotations

from .output import busy, console, print_json, save_json
from .shared import AsJson, Folder, Key, Seed, TracePath, app
from .traces import read_trace


@app.command()
def fit(trace: TracePath, key: Key = None, seed: Seed = 0, as_json: AsJson = False, out: Folder = None) -> None:
    """Fit latency models to recorded rounds, and say how uneven they are and whether any model fits.

    Example: unstraggle fit out/measure -o out/fit
    """
    from ...latency import fit as run
    from ..plots import fitted_distributions

    recorded = read_trace(trace, key)
    with busy(f"fitting {trace}", as_json):
        summary, found = recorded.summary(), run(recorded, rng=seed)
    about = {"trace": str(trace), "key": key, "seed": seed, "summary": summary.to_dict(), "fit": found.to_dict()}
    if out:
        save_json(out / "fit.json", about)
        fitted_distributions(found).savefig(out / "fit.png", dpi=150)
    if as_json:
        print_json(about)
        return
    console().print(f"{summary}\n\n{found}", markup=False)
    if out:
        print(f"Written to {out}: fit.json, fit.png")
