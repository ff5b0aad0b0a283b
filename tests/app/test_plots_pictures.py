"""Pictures: each function draws what it is given, with units on its axes, and refuses what it cannot draw."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

import unstraggle as us
from unstraggle import Invalid
from unstraggle.app import plots
from unstraggle.app.plots.training import POINTS
from unstraggle.plan.compression import compression
from unstraggle.study.rounds import Rounds, Sample
from unstraggle.trace import Trace, from_seconds

MODEL = us.latency.ShiftedExponential(rate=10, shift=0.01)
SPEEDS = dict.fromkeys((2, 4, 8, 16), (5e8, 8e8)) | {32: (np.inf, 2e9)}


def rng(seed=0):
    return np.random.default_rng(seed)


def trace(rounds=30, n=5):
    """Rounds of two tasks, of which worker 4 gets nothing done now and then."""
    end = np.cumsum(0.1 + rng().exponential(0.05, (rounds, n, 2)), axis=2)
    end[::3, 4] = np.inf
    start = np.concatenate([np.zeros((rounds, n, 1)), np.where(np.isfinite(end[:, :, :1]), end[:, :, :1], 0.0)], axis=2)
    return Trace(start, end, end + 0.01, 100.0)


def records(count=20, **more):
    split = {"compute": 0.3, "transfer": 0.1, "slack": 0.05, "decode": 0.01, "outside": 0.04}
    return [{"loss": 2.0 / (1 + i), "wall": 0.5, "idle": 0.3, "split": split, **more} for i in range(count)]


def rounds(name="a"):
    times = 0.1 + rng(1).exponential(0.1, 500)
    return Rounds(name, Sample(times), Sample(np.full(500, 4)), Sample(np.ones(500)), Sample(np.zeros(500)))


PICTURES = {
    "completion_times": lambda: plots.completion_times([rounds("a"), rounds("b")]),
    "lateness": lambda: plots.lateness(trace()),
    "timeline": lambda: plots.timeline(trace(), 3),
    "time_split": lambda: plots.time_split({"one": records(), "two": records()}),
    "loss": lambda: plots.loss({"one": records(), "two": records(10)}),
    "code_matrix": lambda: plots.code_matrix(us.parse_code("cluster(correlated_mmc(5, load=5, order=3), times=2)")),
    "bits": lambda: plots.bits(compression(10**6, 1e7, bits=[2, 4, 8, 16], speeds=SPEEDS)),
    "redundancy_curve": lambda: plots.redundancy_curve(us.plan.redundancy(MODEL, n=6)),
    "front": lambda: plots.front(us.plan.orders(MODEL, n=6, load=3, rounds=500)),
    "candidates": lambda: plots.candidates(us.plan.auto(MODEL, n=4, rounds=500)),
}


def pixels(figure):
    """(height, width, 3) of the picture."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=60)
    file.seek(0)
    return imread(file)[:, :, :3]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_not_empty_and_their_axes_are_labelled(name):
    figure = PICTURES[name]()
    assert isinstance(figure, Figure) and all(axes.get_xlabel() or axes.get_ylabel() for axes in figure.axes)
    shown = pixels(figure)
    inked = (shown < 0.95).any(axis=2)
    assert inked.mean() > 0.01 and min(shown.shape[:2]) > 100
    rows, columns = np.flatnonzero(inked.any(axis=1)), np.flatnonzero(inked.any(axis=0))
    assert np.ptp(rows) > 0.6 * shown.shape[0] and np.ptp(columns) > 0.6 * shown.shape[1], "it fills its frame"


def test_times_have_units():
    for name in ("completion_times", "timeline", "time_split", "redundancy_curve", "front"):
        words = " ".join(axes.get_xlabel() + " " + axes.get_ylabel() for axes in PICTURES[name]().axes)
        assert "(s)" in words or "seconds" in words, name


def test_lateness_shows_each_worker_over_the_median():
    seconds = np.ones((10, 4))
    seconds[:, 2] = 3.0
    seconds[4, 1] = np.inf
    image = plots.lateness(from_seconds(seconds)).axes[0].images[0].get_array()
    assert image.shape == (4, 10) and np.ma.allclose(image[2], 3.0) and np.ma.allclose(image[0], 1.0)
    assert image.mask.sum() == 1 and image.mask[1, 4], "never is not a colour"


def test_long_traces_keep_their_late_rounds():
    seconds = np.ones((5000, 3))
    seconds[1234, 1] = 7.0
    image = plots.lateness(from_seconds(seconds)).axes[0].images[0].get_array()
    assert image.shape[1] <= plots.runs.WIDEST and image[1].max() == pytest.approx(7.0)


def test_traces_in_which_nothing_arrived_can_be_drawn():
    for picture in (plots.lateness, plots.timeline):
        assert pixels(picture(from_seconds(np.full((3, 2), np.inf)))).size


def test_timeline_has_a_bar_for_each_task_and_marks_the_late():
    figure = plots.timeline(trace(), 0)
    patches = figure.axes[0].patches
    hatched = [patch for patch in patches if patch.get_hatch()]
    assert len(hatched) == 1 and len(patches) == 4 * 2 + 4 + 1
    with pytest.raises(Invalid, match="between 0 and 29"):
        plots.timeline(trace(), 30)


def test_where_the_time_goes_adds_up_and_shows_who_was_idle():
    axes = plots.time_split({"one": records()}).axes[0]
    parts = [bar for bar in axes.patches if not bar.get_hatch()]
    idle = [bar for bar in axes.patches if bar.get_hatch()]
    assert sum(bar.get_width() for bar in parts) == pytest.approx(0.5) == parts[-1].get_x() + parts[-1].get_width()
    assert len(idle) == 1 and (idle[0].get_width(), idle[0].get_x()) == pytest.approx((0.3, 0.2))
    assert "wall-clock" in axes.get_xlabel()


def test_repeated_runs_are_averaged():
    both = [r | {"repeat": k, "loss": r["loss"] + k} for k in (0, 1) for r in records(8)]
    line = plots.loss({"a": both}).axes[0].lines[0]
    assert np.allclose(line.get_ydata(), [2.0 / (1 + i) + 0.5 for i in range(8)])
    assert np.allclose(line.get_xdata(), 0.5 * np.arange(1, 9)), "wall-clock times add up, for each repetition"
    cut = plots.loss({"a": both[:-2]}).axes[0].lines[0]
    assert np.allclose(cut.get_ydata(), [2.0 / (1 + i) for i in range(8)]), "an interrupted repetition is left out"
    long = plots.loss({"a": records(10_000)}).axes[1].lines[0].get_xdata()
    assert len(long) <= POINTS and (long[0], long[-1]) == (0, 9999)
    with pytest.raises(Invalid, match='"loss" and "wall"'):
        plots.loss({"a": [{"time": 1.0}]})


def test_code_matrix_shows_the_coefficients():
    code = us.codes.cyclic_repetition(6, s=2)
    assert np.allclose(plots.code_matrix(code).axes[0].images[0].get_array(), code.messages.coef.toarray())
    complex_code = us.codes.reed_solomon(6, s=2)
    assert np.allclose(
        plots.code_matrix(complex_code).axes[0].images[0].get_array(), np.abs(complex_code.messages.coef.toarray())
    )


def test_bits_marks_what_was_chosen():
    found = compression(10**6, 1e7, bits=[2, 4, 8, 16], speeds=SPEEDS)
    colours = [bar.get_facecolor() for bar in plots.bits(found).axes[1].patches]
    places = [choice.bits for choice in found.choices if choice.bits < 32]
    assert [colour == colours[places.index(found.bits)] for colour in colours].count(True) == 1


def test_colours_are_told_apart_by_the_colour_blind():
    """Okabe and Ito's palette; and lines differ in lightness, too, so that print without colour shows some of it."""
    assert set(plots.COLOURS) <= {"#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}
    assert len(set(plots.COLOURS)) == len(plots.COLOURS)
