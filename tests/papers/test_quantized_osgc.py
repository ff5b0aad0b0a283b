"""The reproduction of [C]: bit allocations of figure 1, and training runs that are what a real master would do."""

import json
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.engines.virtual import Virtual
from unstraggle.latency import Exponential
from unstraggle.papers.quantized_osgc import errors as quantized_osgc_errors
from unstraggle.papers.quantized_osgc import figure1 as quantized_osgc
from unstraggle.papers.quantized_osgc import figures as quantized_osgc_figures
from unstraggle.papers.quantized_osgc import logistic as quantized_osgc_logistic
from unstraggle.papers.quantized_osgc import missed
from unstraggle.papers.quantized_osgc.schemes import BUILD, Cluster, scheme, shared_partition, straggle_probabilities
from unstraggle.plan.error import mean_squared_error
from unstraggle.quantizers import QSGD, ErrorFeedback
from unstraggle.runtime.master import Master
from unstraggle.scheme.stop import Deadline

from ..pictures import is_a_picture

torch = pytest.importorskip("torch")
pytest.importorskip("mlxtend")
from unstraggle.papers.quantized_osgc import training as training  # noqa: E402
from unstraggle.papers.quantized_osgc.problems import ByteModel, accuracy, conv_net, mnist, python_text  # noqa: E402
from unstraggle.papers.quantized_osgc.training import Estimator, Panel, Run, train  # noqa: E402

torch.set_num_threads(1)  # many small products
N = 10
PAGE = Path(__file__).parents[2] / "papers" / "quantized_osgc"
MEASURED = tuple(1000.0 / 4**bits for bits in range(2, 17))


@pytest.fixture(scope="module")
def digits():
    return mnist(N, seed=3)


def cluster(dim, n=N, each=4):
    return Cluster(tuple(straggle_probabilities(n).tolist()), each * n, dim, MEASURED, seed=1)


# Figure 1


@pytest.mark.parametrize(
    "n, gamma, budget, exact, greedy, equal",
    [
        (50, 1.0, 150, 0.838942, 0.642218, 4.92e-5),
        (50, 1.0, 500, 4.749, 3.72814, 1.1285),
        (50, "balanced", 350, 4.65941, 4.06135, 2.64088),
        (100, "balanced", 700, 9.31895, 8.12273, 5.28175),
    ],
)
def test_objectives_of_figure1(n, gamma, budget, exact, greedy, equal):
    row = quantized_osgc.objectives(n, gamma, budget, skip=("relaxation",))
    assert [row["dp"], row["fast"]] == pytest.approx([exact, exact], rel=1e-5)
    assert [row["greedy"], row["equal"]] == pytest.approx([greedy, equal], rel=2e-3)
    assert row["relaxation"] is None and row["dp"] < row["no quantiser"]


def test_figure1_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(quantized_osgc, "QUICK", (3, 5))
    monkeypatch.setattr(quantized_osgc, "WORKERS", (5, 10))
    rows = quantized_osgc.reproduce_figure1(tmp_path, quick=True)
    assert (
        len(rows) == 8
        and all(row["dp"] >= row["relaxation"] for row in rows)
        and (tmp_path / "cagc-fig1.png").stat().st_size > 10_000
    )
    assert quantized_osgc.table(rows)[1][0] == "5 15 1"


# Schemes


@pytest.mark.parametrize("label", [label for label in BUILD if label != "SGD"])
def test_schemes_spend_the_budget_and_are_unbiased_as_claimed(label):
    target = cluster(dim=10_000)
    code = scheme(label, target).code
    spent = np.zeros(N)
    spent[code.messages.worker] = code.messages.bits
    full = {"1-bit SGC": N, "unquantised OSGC": 32 * N}.get(label, target.budget)
    assert spent.sum() == full or (label == "BGC" and spent.sum() < full), "workers without a partition send nothing"
    biased = label.split(",")[0] in ("IS-SGD", "BGC", "EHD", "OD")
    assert mean_squared_error(code, target.p).unbiased != biased


def test_unknown_schemes_are_refused():
    with pytest.raises(Invalid, match="Known: SGD"):
        scheme("SGX", cluster(100))
    with pytest.raises(Invalid, match="scaled EF"):
        scheme("SGC + memory", cluster(100))


# The estimator is the master


@pytest.mark.parametrize(
    "label", ["IS-SGD", "BGC", "EHD", "OD", "SGC", "1-bit SGC", "OSGC", "proposed", "proposed, two tracks"]
)
def test_estimator_is_what_a_master_decodes(digits, label):
    how = scheme(label, cluster(digits.dim))
    rng, params = np.random.default_rng(0), digits.initial()
    estimator = Estimator(digits, how)
    with Master(how.code, Virtual(digits, Exponential(1.0)), Deadline(1.0)) as master:
        for step, share in enumerate((0.5, 1.0, 0.2)):
            arrived = rng.random(N) < share
            delays = np.where(arrived[how.code.messages.worker], 0.5, np.inf)
            estimate = master.gradient(params, step, delays=delays)
            tracks, _ = estimator(params, step, arrived)
            scale = np.abs(tracks).max()
            assert tracks.shape == estimate.tracks.shape and scale > 0
            assert np.abs(tracks - estimate.tracks).max() < 1e-4 * scale


@pytest.mark.parametrize("label", ["OSGC + live EF", "IS-SGD + scaled live EF", "SGC + live EF"])
def test_live_error_feedback_is_what_a_master_decodes(digits, label):
    """Step by step, with other workers late every time: the memories of the simulation are those of the workers."""
    how = scheme(label, cluster(digits.dim))
    codecs = [ErrorFeedback(codec, scaled="scaled" in label) for codec in how.code.messages.codec]
    code = replace(how.code, messages=how.code.messages.changed(codec=codecs))
    rng, params = np.random.default_rng(1), digits.initial()
    estimator = Estimator(digits, how)
    with Master(code, Virtual(digits, Exponential(1.0)), Deadline(1.0)) as master:
        for step in range(6):
            arrived = rng.random(N) < 0.6
            delays = np.where(arrived[code.messages.worker], 0.5, np.inf)
            estimate = master.gradient(params, step, delays=delays)
            tracks, _ = estimator(params, step, arrived)
            assert np.abs(tracks - estimate.tracks).max() < 1e-4 * np.abs(tracks).max()


def test_nobody_arrives(digits):
    for label in ("OSGC", "OD", "proposed, two tracks"):
        tracks, bits = Estimator(digits, scheme(label, cluster(digits.dim)))(digits.initial(), 0, np.zeros(N, dtype=bool))
        assert not tracks.any() and bits == 0


def test_bits_of_those_that_arrived(digits):
    arrived = np.arange(N) < 3
    how = scheme("proposed", cluster(digits.dim))
    _, bits = Estimator(digits, how)(digits.initial(), 0, arrived)
    assert bits == (how.code.messages.bits[:3] * digits.dim + 32).sum()
    assert Estimator(digits, scheme("SGD", cluster(1)))(digits.initial(), 0, arrived)[1] == 32 * N * digits.dim
    _, full = Estimator(digits, scheme("unquantised OSGC", cluster(digits.dim)))(digits.initial(), 0, arrived)
    assert full == 3 * 32 * digits.dim


@pytest.mark.parametrize("how", ["EF", "scaled EF"])
def test_memory_of_a_straggler_is_that_of_a_lost_payload(digits, how):
    estimator = Estimator(digits, scheme(f"SGC + {how}", cluster(digits.dim)))
    twin = ErrorFeedback(estimator.codecs[0].codec, scaled="scaled" in how)
    for step in range(3):
        numbers = digits.grad(digits.initial(), step)
        estimator._sent(0, numbers, step, used=False)
        twin.lost(twin.encode(numbers, seed=step))
    assert np.allclose(estimator.codecs[0].error, twin.error, atol=1e-3 * np.abs(twin.error).max())


# Training


def test_runs_repeat_and_share_their_stragglers():
    panel = Panel(n=N, each=4, steps=10)
    first, again = train(panel, "OSGC", 0.05, seed=2), train(panel, "OSGC", 0.05, seed=2)
    assert np.array_equal(first.loss, again.loss) and np.array_equal(first.bits, again.bits)
    other = train(panel, "SGC", 0.05, seed=2)
    assert first.loss[0] == other.loss[0] and np.array_equal(first.bits > 0, other.bits > 0)
    assert train(panel, "OSGC", 0.05, seed=3).loss[0] != first.loss[0]


def test_sgd_learns_the_digits_and_a_wild_rate_diverges():
    panel = Panel(n=N, each=4, steps=60)
    good, wild = train(panel, "SGD", 0.45, seed=0), train(panel, "1-bit SGC", 5.0, seed=0)
    assert good.final < 0.7 and good.accuracy > 0.75 and len(good.loss) == 13
    assert wild.final == training.CAP and len(wild.loss) == 13 and np.isfinite(wild.bits).all()


def test_two_tracks_are_a_larger_rate_in_training():
    """End to end: Adam with the second track is Adam with rate / c."""
    panel = Panel(n=N, each=4, steps=10, optimizer="adam")
    target = cluster(9802)
    two, one = scheme("proposed, two tracks", target).code, scheme("proposed", target).code
    c = float(two.decoder.fixed[1][0] / one.decoder.fixed[0][0])
    assert 0.1 < c < 0.9
    tracks = train(panel, "proposed, two tracks", 1e-3, seed=0)
    larger = train(panel, "proposed", 1e-3 / c, seed=0)
    assert np.allclose(tracks.loss, larger.loss, rtol=2e-3) and tracks.loss[-1] != tracks.loss[0]


def tuned(monkeypatch, start, loss):
    """What tuning finds from a shared rate where `loss` gives the final loss at a rate, 2.3 before training."""

    def fake(panel, label, rate, seed):
        return Run(np.array([2.3 if panel.steps == 0 else loss(rate) + 0.001 * seed]), np.zeros(1), 0.0)

    monkeypatch.setattr(training, "train", fake)
    rate, tried = training.tuned_rate(Panel(rate=start), "SGD", range(2))
    assert tried[rate] == min(tried.values())
    return rate, tried


def test_tuning_finds_the_best_of_its_ladder(monkeypatch):
    rate, tried = tuned(monkeypatch, 0.05, lambda rate: abs(np.log(rate / 1.4)))
    assert rate == 1.35 and {0.05, 0.15, 0.45, 4.05} <= set(tried)
    assert tuned(monkeypatch, 40.0, lambda rate: abs(np.log(rate / 1.4)))[0] == pytest.approx(1.482, rel=1e-3)


def test_tuning_leaves_the_rates_that_diverge_and_those_that_do_nothing(monkeypatch):
    assert tuned(monkeypatch, 0.05, lambda rate: 10.0 if rate > 1e-3 else 2 - 100 * rate)[0] == pytest.approx(
        0.05 / 3**4, rel=0.1
    )
    assert tuned(monkeypatch, 0.05, lambda rate: 1.0 if 1 < rate < 9 else 2.299 + 1e-4 * rate)[0] in (1.35, 2.338, 4.05)


def test_models_and_data():
    assert sum(p.numel() for p in conv_net().parameters()) == 9802
    text = python_text(20, seed=0)
    assert text.k == 20 and text.dim > 10_000 and np.isfinite(text.grads(text.initial(), 0, [3, 4])).all()
    torch.manual_seed(0)
    model, line = ByteModel(50), torch.randint(0, 50, (1, 16))
    changed = line.clone()
    changed[0, 9] = (changed[0, 9] + 1) % 50
    same = (model(line) == model(changed)).all(dim=-1)[0]
    assert same[:9].all() and not same[9:].any(), "a byte says nothing about those before it"
    skewed, mixed = mnist(N, 0, skewed=True), mnist(N, 0)
    kinds = [np.mean([len(np.unique(p.targets.numpy()[rows])) for rows in p.rows]) for p in (skewed, mixed)]
    assert kinds[0] <= 2 and kinds[1] == 10 and 0 <= accuracy(mixed, mixed.initial()) < 0.4


def test_figures_are_written(tmp_path, monkeypatch):
    """The smallest of figure 3: one line, its process and all."""
    lines = (("proposed", Panel(n=N, each=4, steps=5), "proposed"),)
    small = [quantized_osgc_figures.Comparison("a", "small, test", lines, x="bits sent")]
    monkeypatch.setattr(quantized_osgc_figures, "figure3", lambda: small)
    monkeypatch.setattr(quantized_osgc_figures, "_quick", lambda comparison: comparison)
    rows = quantized_osgc_figures.reproduce_figure3(tmp_path, quick=True)
    assert [(row["scheme"], row["rates"]) for row in rows[:2]] == [("proposed", "shared"), ("proposed", "tuned")]
    assert {row["panel"] for row in rows[2:]} == {"b", "c"}  # from a GPU
    assert rows[0]["gap"] == 0 and rows[0]["runs"] == 2 and rows[0]["rate"] == 0.05 and rows[0]["bits_a_step"] > 0
    saved = json.loads((tmp_path / "cagc-fig3.json").read_text())
    assert len(saved["curves"]["a"]["lines"][0]["shared"]["mean"]) == 2
    assert set(saved["curves"]) == {"a", "b", "c"} and "H200" in saved["elsewhere"]["hardware"]
    assert len(quantized_osgc_figures.table(rows)) == len(rows) and (tmp_path / "cagc-fig3.png").stat().st_size > 10_000


def test_the_usual_run_fits_into_ten_minutes_on_two_cores():
    """By the processor time of the full one, which is in the results: runs and looks for a rate are fewer in proportion."""
    (usual, looks), (full, most) = (quantized_osgc_figures.RUNS[effort] for effort in ("usual", "full"))
    for name in ("cagc-fig2", "cagc-fig3"):
        found = json.loads((PAGE / f"{name}.json").read_text())
        assert found["repeat"] == f"unstraggle reproduce {name} --full" and found["rows"][0]["runs"] == full
        assert found["processor_minutes"] * max(usual / full, looks / most) / 2 <= 8


def test_another_seed_runs_on_other_seeds(monkeypatch):
    """Runs and looks for a rate share no seed, neither with one another nor with those of the first set."""
    asked = []

    class Here:
        def __init__(self, *_, **__): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def submit(self, study, panel, label, runs, others):
            asked.append((set(runs), set(others)))
            done = Future()
            done.set_result({})
            return done

    monkeypatch.setattr(quantized_osgc_figures, "ProcessPoolExecutor", Here)
    for seed in (0, 1):
        quantized_osgc_figures.studies([("SGD", Panel(), "SGD")], 8, 2, seed, None)
    assert asked[0] == (set(range(8)), {1000, 1001})
    assert len(set.union(*(some for both in asked for some in both))) == 2 * (8 + 2)


def test_lines_of_a_panel_can_be_told_apart_without_colour():
    for comparison in (*quantized_osgc_figures.figure2(), *quantized_osgc_figures.figure3()):
        styles = quantized_osgc_figures.plots.styles_of([name for name, _, _ in comparison.lines])
        looks = [(style.line, style.marker) for style in styles.values()]
        assert len(set(looks)) == len(looks), comparison.name


def test_losses_in_the_end_stand_beside_every_panel_of_figure_3():
    """With the names of all lines; who diverged is named, and has no point."""
    saved = json.loads((PAGE / "cagc-fig3.json").read_text())
    panels = {name: saved["curves"][name] for name in ("a2", "d", "p")}
    rows = [row for row in saved["rows"] if row["panel"] in panels]
    axes = quantized_osgc_figures.plots.curves(list(panels.values()), rows).axes[2::3]
    names = [[tick.get_text() for tick in one.get_yticklabels()] for one in axes]
    assert [len(some) for some in names] == [len(panel["lines"]) for panel in panels.values()]
    assert "SGC (1 of 8 diverged)" in names[1] and "proposed, equal bits" in names[0]
    assert [len(one.containers) for one in axes] == [6, 5, 4]


def test_every_figure_names_its_reference():
    for comparison in (*quantized_osgc_figures.figure2(), *quantized_osgc_figures.figure3()):
        names = [name for name, _, _ in comparison.lines]
        assert comparison.reference in names and len(set(names)) == len(names)


def test_panels_have_the_paper_s_letters():
    """Figure 2: a, b, d, e two numbers of workers and two budgets with SGD; c, f Adam. Figure 3: b, c from a GPU."""
    two = {one.name: one.lines[0][1] for one in quantized_osgc_figures.figure2()}
    assert [(two[name].n, two[name].each) for name in "abde"] == [(50, 3), (50, 5), (100, 3), (100, 5)]
    assert [two[name].optimizer for name in "abcdef"] == ["sgd", "sgd", "adam", "sgd", "sgd", "adam"]
    three = {one.name: one for one in quantized_osgc_figures.figure3()}
    assert {"a", "d", "e", "f"} <= set(three) and not {"b", "c"} & set(three)
    assert {f"{label} + EF" for label in ("SGC", "OSGC", "IS-SGD", "EHD", "OD", "BGC")} <= {
        line[0] for line in three["e"].lines
    }


def test_the_authors_structure_is_unbiased_with_negative_weights():
    p = straggle_probabilities(N)
    code = shared_partition(p, np.zeros(N))
    assert code.messages.coef.min() < 0 and mean_squared_error(code, p).unbiased


def test_a_step_of_several_mini_batches_sums_their_gradients():
    once, twice = (Panel(n=N, each=4, steps=4, passes=passes) for passes in (1, 2))
    assert list(twice.batches(3)) == [6, 7]
    found = training._sum([(np.ones((1, 3)), 2.0), (2 * np.ones((1, 3)), 5.0)])
    assert found[0].tolist() == [[3.0, 3.0, 3.0]] and found[1] == 7.0
    runs = [train(panel, "OSGC", 0.01, seed=0) for panel in (once, twice)]
    assert runs[1].bits[-1] == 2 * runs[0].bits[-1]


# Exact errors


def test_errors_of_normal_coordinates_are_those_of_the_quantiser():
    x = np.random.default_rng(0).standard_normal(20_000)
    for bits in (2, 5, 8):
        assert quantized_osgc_errors.gaussian_omega(len(x))[bits - 2] == pytest.approx(
            QSGD(bits).variance(x, relative=True), rel=0.03
        )


def test_who_errs_less_for_the_same_bits_sent_depends_on_the_coordinates():
    def error(label, dim, each):
        return quantized_osgc_errors.error(label, dim, each, quantized_osgc_errors.gaussian_omega(dim))

    ours, rival = error("proposed, qsgd omega", 3_440_060, 5), error("OSGC", 3_440_060, 7)
    assert ours["sent"] == pytest.approx(rival["sent"], rel=0.02) and ours["error"] < rival["error"] / 10
    assert error("OSGC", 10_000, 10)["error"] < error("proposed", 10_000, 8)["error"]
    free = error(quantized_osgc_errors.SILENT, 3_440_060, 3)
    assert free["error"] < 0.5 * error("proposed, qsgd omega", 3_440_060, 3)["error"]


# Logistic regression


def test_order_of_schemes_where_quantisation_matters():
    rows = quantized_osgc_logistic.final_losses((4,), (30.0,), seeds=1, steps=80)
    above = {row["scheme"].split(",")[0]: row["above"] for row in rows}
    assert above["SGD"] < 1e-3 < above["proposed"] < above["OSGC"] < above["SGC"]
    assert above["IS-SGD"] > above["OSGC"], "at a rate made for unbiased sums"


def test_ignoring_stragglers_recovers_at_a_larger_rate():
    data, p = quantized_osgc_logistic.problem(0), tuple(straggle_probabilities(50).tolist())
    code = scheme("IS-SGD", Cluster(p, 350, 1000)).code
    slow, fast = (quantized_osgc_logistic.train(data, code, rate, 0, steps=100) for rate in (10.0, 100.0))
    exact = quantized_osgc_logistic.train(data, None, 10.0, 0, steps=100)
    assert fast - exact < 0.4 * (slow - exact)


def test_deadlines_missed_where_steps_follow_one_another(tmp_path):
    """Few steps of the same draws: near the committed result, and free workers near the paper's probabilities."""
    known = json.loads((PAGE / "cagc-carry.json").read_text())["rows"]
    for row, whole in zip(missed.reproduce_missed(tmp_path, rounds=300), known, strict=True):
        assert all(row[key] == whole[key] for key in ("n", "psi up to", "free, exact", "slowest task"))
        for found in (row, whole):
            assert abs(found["free"] - found["free, exact"]) < 2 * found["free_half"]
        assert abs(row["carry-over"] - whole["carry-over"]) < 4 * row["carry-over_half"]
        assert row["free"] < row["carry-over"] < 1
    assert is_a_picture(tmp_path / "cagc-carry.png")
