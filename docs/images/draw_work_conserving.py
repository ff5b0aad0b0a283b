"""Draw work-conserving.png: one round of three schemes on the same machines. Run: python docs/images/draw_work_conserving.py"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from unstraggle import Master
from unstraggle.codes import fractional_repetition, uncoded, work_conserving
from unstraggle.engines import Virtual
from unstraggle.problems import LeastSquares

SECONDS = np.array([1.0, 1.1, 0.9, 4.0, 1.0, 1.2])
"""Of a share of the data on each machine: worker 3 is slow in this round."""
SCHEMES = {
    "wait for all": uncoded(6),
    "repetition, s = 1": fractional_repetition(6, s=1),
    "work conserving, load 3, pieces 4": work_conserving(6, load=3, pieces=4),
}
OWN, OTHER, NEEDLESS = "#4477aa", "#66ccee", "#dddddd"


class Machines:
    """A latency model: what each machine takes for a unit of work."""

    def speeds(self, n, rounds, rng):
        return np.tile(SECONDS, (rounds, 1))

    def sample(self, code, rounds, rng):
        return self.speeds(code.n, rounds, rng)[:, code.messages.worker] * code.ready()


def tasks(code):
    """(worker, begin, end, own) of the tasks of one round, and when it ended."""
    problem = LeastSquares.split(np.ones((2 * code.k, 1)), np.ones(2 * code.k), code.shares.tolist())
    with Master(code, engine := Virtual(problem, Machines(), rng=0, carry=True)) as master:
        estimate = master.gradient(np.zeros(1))
        if code.handing is not None:
            found = [(w, a, b, p) for w, seat in enumerate(engine._shifts._seats) for a, b, p in _times(code, seat)]
            return found, estimate.wait
    finish = np.cumsum(code.tasks.work[code.tasks.queues], axis=1) * SECONDS[:, None]
    begin = np.concatenate([np.zeros((code.n, 1)), finish[:, :-1]], axis=1)
    found = [
        (w, begin[w, i], finish[w, i], i == 0)
        for w in range(code.n)
        for i in range(finish.shape[1])
        if begin[w, i] < estimate.wait
    ]
    return found, estimate.wait


def _times(code, seat):
    pairs = list(zip(seat.times[::2], seat.times[1::2], strict=True))
    done = [*seat.done, seat.task] if seat.task >= 0 else seat.done
    owner = code.handing.owner
    return [(a, b, owner[code.tasks.part[t]] == code.tasks.worker[t]) for (a, b), t in zip(pairs, done, strict=True)]


def main(out):
    figure, panels = plt.subplots(len(SCHEMES), 1, figsize=(7, 5.6), sharex=True, layout="constrained")
    for axes, (name, code) in zip(panels, SCHEMES.items(), strict=True):
        found, end = tasks(code)
        for worker, begin, until, own in found:
            colour = NEEDLESS if until > end + 1e-9 else OWN if own else OTHER
            axes.barh(worker, until - begin, left=begin, height=0.72, color=colour, edgecolor="white", linewidth=0.8)
        axes.axvline(end, color="black", linewidth=1.2)
        axes.annotate(f"gradient at {end:.2f}", (end, -0.75), (4, 0), textcoords="offset points", fontsize=9, va="center")
        axes.set(ylabel="worker", yticks=range(6), xlim=(0, 4.6), ylim=(5.6, -1.2))
        axes.set_title(name, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("time, in shares of the data on a fast machine")
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in (OWN, OTHER, NEEDLESS)]
    labels = ["own share", "share of another worker", "needless when it ends: carried into the next round"]
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main(Path(__file__).parent / "work-conserving.png")
