"""Every number on the page of paper C is in a result beside it, or is a setting that is named here."""

import json

import numpy as np
import pytest

from unstraggle import plan
from unstraggle.papers import FIGURES
from unstraggle.papers.quantized_osgc.schemes import straggle_probabilities

from .page_numbers import PAPERS, left_over, read, tables

GPU = json.loads((PAPERS.parent / "benchmarks/results/training_gpu.json").read_text())
TIMES = json.loads((PAPERS.parent / "benchmarks/results/reproducing.json").read_text())["figures"]
VARIANTS = ("proposed, gamma 1, QSGD omega", "proposed, measured omega")


def rows(name, **where):
    return [row for row in tables.rows_of(name) if all(row[key] == value for key, value in where.items())]


def one(name, **where):
    (found,) = rows(name, **where)
    return found


def gap(name, panel, scheme, rates="tuned", sign=""):
    row = one(name, panel=panel, scheme=scheme, rates=rates)
    value = row["gap"] if sign else abs(row["gap"])
    return f"{value:{sign}.2f} ± {row['gap_half']:.2f}"


def loss(name, panel, scheme, half=False):
    row = one(name, panel=panel, scheme=scheme, rates="tuned")
    return f"{row['loss']:.2f}" + (f" ± {row['loss_half']:.2f}" if half else "")


def ahead(panel):
    """Schemes that proposed leaves behind by more than the interval, at own rates."""
    return {row["scheme"] for row in rows("cagc-fig2", panel=panel, rates="tuned") if row["gap"] > row["gap_half"]}


def lag(panel, schemes, rates):
    """The least gap of these schemes, to one digit below."""
    return min(one("cagc-fig2", panel=panel, scheme=scheme, rates=rates)["gap"] for scheme in schemes)


def losses_of(method, gamma, least=0.0):
    """Shares that an allocation loses to the exact one in figure 1, beyond the smallest budget."""
    found = [row for row in tables.rows_of("cagc-fig1") if row["gamma"] == gamma and row["B/n"] > 2]
    return [(row["B/n"], max(0.0, 1 - row[method] / row["dp"])) for row in found if row["B/n"] > least]


def lost_range(method, gamma, least=0.0):
    shares = [share for _, share in losses_of(method, gamma, least)]
    return f"{100 * min(shares):.0f} to {100 * max(shares):.0f} %"


def allocation_facts():
    assert all(row["subsets"] == pytest.approx(row["dp"], rel=1e-9) for row in tables.rows_of("cagc-fig1"))
    assert all(share > 0.98 for each, share in losses_of("relaxation", 1.0) if each <= 6)
    return [
        f"all {len(tables.rows_of('cagc-fig1'))} settings",
        f"Greedy loses {lost_range('greedy', 1.0)}",
        f"and {lost_range('relaxation', 1.0, 6)} above",
        f"Balanced gamma: greedy {lost_range('greedy', 'balanced')}, relaxation {lost_range('relaxation', 'balanced')}",
    ]


def training_facts():
    two, three, tracks = "cagc-fig2", "cagc-fig3", "proposed, two tracks"
    biased, coded = ("IS-SGD", "BGC", "EHD", "OD"), ("IS-SGD", "BGC", "EHD", "OD", "SGC", "OSGC")
    p = straggle_probabilities(50)
    speed = [
        1 + 1 / plan.bits(straggle_probabilities(n), budget=3 * n, dim=9802, gamma="balanced").objective for n in (50, 100)
    ]
    ratio = {s: one(two, panel="a", scheme=s, rates="tuned")["rate"] for s in ("SGD", "proposed", "IS-SGD")}
    apart = {s for s in coded if abs((row := one(two, panel="e", scheme=s, rates="tuned"))["gap"]) > row["gap_half"]}
    assert apart == {"SGC", "IS-SGD"}
    assert ahead("a") >= set(coded) and ahead("c") >= set(coded) and ahead("f") >= set(coded)
    assert not {"OSGC", "OD"} & (ahead("b") | ahead("d") | ahead("e"))
    assert lag("a", biased, "shared") >= 0.8 and lag("c", coded, "shared") >= 0.355
    assert round(ratio["SGD"] / ratio["proposed"]) == 3
    return [
        "OD, by 0.8 or more".replace("OD, ", ""),
        f"OD {gap(two, 'a', 'OD')}, EHD {gap(two, 'a', 'EHD')}, OSGC {gap(two, 'a', 'OSGC')}, SGC {gap(two, 'a', 'SGC')}",
        f"against OD ({gap(two, 'b', 'OD', sign='+')}) and OSGC ({gap(two, 'b', 'OSGC')})",
        f"is {1 - p.mean():.2f} to {2 * (1 - p.mean()):.2f} of the true one",
        f"rates {ratio['IS-SGD'] / 0.05:.0f} times larger",
        f"OD {gap(two, 'd', 'OD', sign='+')}, EHD {gap(two, 'd', 'EHD', sign='+')} and OSGC {gap(two, 'd', 'OSGC', sign='+')}",
        f"SGC ({gap(two, 'e', 'SGC')}) and IS-SGD ({gap(two, 'e', 'IS-SGD')}) alone",
        f"gap {gap(two, 'a', 'SGD', 'shared')} at n = 50",
        f"{loss(two, 'a', 'proposed')} against {loss(two, 'a', 'SGD')}",
        f"IS-SGD stays {gap(three, 's', 'IS-SGD')} behind",
        f"random partitions {gap(two, 'b', 'IS-SGD')}, not resolved",
        f"at 3 bits it is {gap(two, 'a', 'IS-SGD')} behind",
        f"{gap(two, 'c', tracks, 'shared')} (n = 50) and {gap(two, 'f', tracks, 'shared')} (n = 100)",
        f"own rates {gap(two, 'c', tracks)} and {gap(two, 'f', tracks, sign='+')}".replace("+-", "-"),
        f"1 / c = {speed[0]:.2f} and {speed[1]:.2f}",
        "at one rate (0.36 or more)",
        f"({gap(two, 'c', 'OD')} against OD to {gap(two, 'c', 'IS-SGD')} against IS-SGD; n = 100: {gap(two, 'f', 'OD')} to "
        f"{gap(two, 'f', 'IS-SGD')})",
        f"({loss(three, 'a', 'proposed, B = 350')}, {loss(three, 'a', 'proposed, B = 200')} against "
        f"{loss(three, 'a', 'unquantised', half=True)})",
        f"at B = 150 {gap(three, 'a', 'unquantised')} worse",
        f"at B = 150 by {gap(three, 'a', 'OSGC, B = 150')}",
        f"the bits alone ({loss(three, 'a2', 'OSGC, allocated bits', half=True)}) or the structure alone "
        f"({loss(three, 'a2', 'proposed, equal bits', half=True)}) nothing is gained over OSGC "
        f"({loss(three, 'a2', 'OSGC', half=True)}), and proposed ({loss(three, 'a2', 'proposed', half=True)}) is ahead of each "
        f"by {gap(three, 'a2', 'proposed, equal bits')} or more",
        f"OSGC is {gap(three, 'd', 'OSGC')}, not resolved",
        f"missed, {100 * straggle_probabilities(50, fastest=5.0).mean():.0f} %",
        f"miss {100 * p.mean():.0f} % of their deadlines",
    ]


def memory_facts():
    """Error feedback, panel e, and the authors' setting, panel p, of figure 3."""
    found = rows("cagc-fig3", panel="e", rates="tuned")
    plain, scaled = ([row["loss"] for row in found if row["scheme"].endswith(f" + {how}")] for how in ("EF", "scaled EF"))
    live = {row["scheme"]: row for row in rows("cagc-fig3", panel="e2", rates="tuned")}
    unscaled, kept = ([live[f"{name} + {how}"] for name in ("SGC", "OSGC", "IS-SGD")] for how in ("live EF", "scaled live EF"))
    three = [row["loss"] for row in found if row["scheme"] in ("SGC + scaled EF", "OSGC + scaled EF", "IS-SGD + scaled EF")]
    losses = [row["loss"] for row in kept]
    nearest = min(kept, key=lambda row: row["gap"])
    assert {f"{row['loss']:.2f}" for row in unscaled} == {"2.31"}
    program = {row["scheme"]: row for row in rows("cagc-fig3", panel="p")}
    lost = [program[f"{name}, authors' program"]["diverged"] for name in ("proposed", "OSGC")]
    gaps = {name: f"{abs(row['gap']):.2f} ± {row['gap_half']:.2f}" for name, row in program.items()}
    theirs = program["proposed, authors' program"]
    assert abs(theirs["gap"]) < theirs["gap_half"] and program["proposed"]["diverged"] == 0
    best = one("cagc-fig3", panel="e", scheme="SGD", rates="tuned")
    assert len(plain) == len(scaled) == 6 and {row["rates"] for row in program.values()} == {"shared"}
    assert program["SGD"]["loss"] - program["SGD"]["loss_half"] < best["loss"]
    return [
        f"({min(plain):.2f} to {max(plain):.2f}, where {np.log(10):.2f} is a guess)",
        f"({min(scaled):.2f} to {max(scaled):.2f}, proposed {loss('cagc-fig3', 'e', 'proposed')})",
        f"{min(losses):.2f} to {max(losses):.2f} against {min(three):.2f} to {max(three):.2f}",
        f"{nearest['gap']:.2f} ± {nearest['gap_half']:.2f} (OSGC) or more behind proposed",
        f"SGD reaches {program['SGD']['loss']:.2f} ± {program['SGD']['loss_half']:.2f}",
        f"Proposed is {gaps['SGD']} behind it, and {gaps['IS-SGD']} ahead of IS-SGD",
        f"SGC, {gaps['SGC']} behind, is not resolved",
        f"{lost[0]} of 8 runs diverge, and {lost[1]} of 8 of OSGC",
        f"the difference, {theirs['gap']:.1f} ± {theirs['gap_half']:.1f}, is not resolved",
    ]


def detection_facts():
    """Figure 4: whom proposed leaves behind by more than the interval, at one rate and at own rates."""
    found = {kind: {row["scheme"]: row for row in rows("cagc-fig4", rates=kind)} for kind in ("shared", "tuned")}
    rivals = [name for name in found["tuned"] if name not in ("SGD", "proposed")]
    behind = {kind: {name for name in rivals if some[name]["gap"] < -some[name]["gap_half"]} for kind, some in found.items()}
    assert behind == {"shared": {"OSGC", "EHD", "IS-SGD", "SGC"}, "tuned": {*rivals} - {"EHD"}}
    one_rate, own = (
        {name: f"{abs(row['gap']):.2f} ± {row['gap_half']:.2f}" for name, row in some.items()} for some in found.values()
    )
    at_one, at_own = ({name: f"{row['AP50']:.2f}" for name, row in some.items()} for some in found.values())
    losing = [at_own[name] for name in rivals]
    shown = tables.about("cagc-fig4")["picture"]["found"]["tuned"]["proposed"]
    assert [(one["name"], one["score"]) for one in shown[:2]] == [("0", 0.96), ("2", 0.93)]
    near, far = (pick(behind["tuned"], key=lambda name: found["tuned"][name]["gap"]) for pick in (max, min))
    return [
        f"ahead of OSGC ({one_rate['OSGC']}), EHD, IS-SGD and SGC ({one_rate['SGC']}); BGC ({one_rate['BGC']}) and OD "
        f"({one_rate['OD']}) are not resolved",
        f"all but EHD ({own['EHD']}, not resolved), by {own[near]} ({near}) to {own[far]} ({far}), and {own['SGD']} behind SGD",
        f"proposed has {at_one['proposed']} instead of {at_own['proposed']}",
        f"proposed {at_own['proposed']}, the rivals {min(losing)} to {max(losing)}, SGD {at_own['SGD']};",
        f"one object has {found['tuned']['proposed']['scores'].split()[1]}, and the other is taken for a 0",
        f"({tables.about('cagc-fig4')['processor_minutes']:.0f} minutes of processor time): [picture",
    ]


def missed_facts():
    """Deadlines that are missed where workers stay in their tasks."""
    first = rows("cagc-carry", n=50)[0]
    return [
        f"simulates {tables.about('cagc-carry')['steps']:,} steps that follow",
        f"lasts for {first['slowest task']:.0f} s on average (n = 50), {first['in steps']:.0f} steps",
    ]


def made_facts():
    about = {name: tables.about(name) for name in ("cagc-fig2", "cagc-fig3")}
    return [
        *(f"({one['processor_minutes']:.0f} minutes of processor time as it was made; without" for one in about.values()),
        *(f"instead of 8, {_clock(TIMES[name]['seconds'])} on two cores" for name in about),
        f"here {about['cagc-fig3']['python']}.",
    ]


def _clock(seconds):
    return f"{round(seconds) // 60} min {round(seconds) % 60} s"


def error_at(dim, scheme, budget):
    row = one("cagc-error", d=dim, scheme=scheme, B=budget)
    return row["sent"], f"{row['error']:.3g}"


def error_facts():
    small, large, variant = 10_000, 3_440_060, "proposed, qsgd omega"
    ours, rival = error_at(small, "proposed", 300), error_at(small, "OSGC", 350)
    assert 32.5 < rival[0] < ours[0] < 34.5
    late = [one("cagc-error", d=small, scheme="OSGC", B=b)["error"] for b in (500, 600)]
    assert min(one("cagc-error", d=small, scheme="proposed", B=b)["error"] for b in (400, 500)) > max(late)
    middle = [error_at(large, s, b) for s, b in (("proposed", 400), ("OSGC", 500), (variant, 350))]
    assert [round(sent) for sent, _ in middle] == [46, 47, 46]
    few = [error_at(large, s, b) for s, b in ((variant, 250), ("OSGC", 350))]
    assert [round(sent) for sent, _ in few] == [33, 33]
    start = [error_at(small, s, b) for s, b in (("proposed", 200), ("OSGC", 250))]
    assert start[0][0] < start[1][0] < 23.6
    return [
        f"about 23 bits sent, proposed has {start[0][1]} and OSGC {start[1][1]}; about 33 to 34, {ours[1]} and {rival[1]}",
        *sent_facts(),
        f"proposed has {middle[0][1]} and OSGC, with 47, {middle[1][1]}",
        f"it is {middle[2][1]} there, and at 33 bits {few[0][1]} against {few[1][1]}",
        f"falls from {error_at(large, variant, 150)[1]} to {error_at(large, f'{variant}, silence allowed', 150)[1]}",
        f"at B = 350 is {error_at(large, 'OSGC', 350)[1]} against {error_at(large, 'proposed', 350)[1]}",
    ]


def sent_facts():
    """Losses in panel f of figure 3 after the bits that OSGC sends in all."""
    lines = {line["scheme"]: line["tuned"] for line in tables.about("cagc-fig3")["curves"]["f"]["lines"]}
    end = lines["OSGC"]["x"][-1]
    at = {
        name: [np.interp(end, lines[name]["x"], lines[name][key]) for key in ("mean", "half")]
        for name in ("proposed", "EHD", "OSGC")
    }
    said = {name: f"{mean:.2f} ± {half:.2f}" for name, (mean, half) in at.items()}
    return [f"proposed has {said['proposed']}, EHD {said['EHD']}, OSGC {said['OSGC']} (panel f)"]


def logistic_facts():
    def least(scheme, budget=200):
        return f"{1e4 * min(row['above'] for row in rows('cagc-logistic', scheme=scheme, B=budget)):.0f}"

    slow = one("cagc-logistic", scheme="IS-SGD", B=200, rate=10.0)
    names = ("proposed, qsgd omega", "OSGC", "SGC", "IS-SGD")
    best = [least(name) for name in names]
    return [
        f"QSGD's omega {best[0]}, OSGC {best[1]}, SGC {best[2]}, IS-SGD {best[3]}",
        f"at rate 10, {1e4 * slow['above']:.0f}, the rate",
    ]


CAGC_SETTINGS = [
    "(3 bits, n = 50), and with Adam also at n = 100; with SGD at n = 100, with 5 bits, and at full size with 7 bits,",
    "with 4 runs",
    "with more than 2 bits per worker",
    "at 5 bits, sorted by label",
    "yes, at B = 150: with",
    "sends in 100 steps",
    "counted as 10",
    "## Figure 1:",
    "## Figure 2:",
    "## Figure 3:",
    "## Figure 4:",
    "W. Choi, 2026, [arXiv 2605.15890",
    "omega = d / (4 s²)",
    "p_i = exp(-0.1 psi_i) (deadline 1.1), psi_i on a grid from 0.01 to 2 instead",
    "figures 2 and 3",
    "At three to nine times",
    "figures 3b and 3c",
    "14 x 14 MNIST digits a convolutional network (d = 9,802)",
    "a transformer (d = 20,235), 8 samples (4 sequences) per partition and step, 100 steps",
    "budgets are 3 to 7 bits",
    "(SGD 0.05, Adam 0.001; 0.5 for the text)",
    "by steps of 3 and then of √3",
    "95 % interval over 8 seeds",
    "d = 3,440,060",
    "Algorithm 1",
    "n = 50, B = 150 (3 bits per worker)",
    "n = k = 50, B = 350 as in the paper, 100 steps, bfloat16",
    "by steps of 3, in both directions; then 8 other seeds",
    "of the last 20 steps, ± 95 %",
    "ResNet-50",
    "d = 25,557,032",
    "by up to 8 pixels, 64 x 64, 4 per partition",
    "GPT-2",
    "d = 124,439,808",
    "2 sequences of 64 per partition",
    "d = 10,000",
    "about 33 to 34 bits sent",
    "from about 40 bits on",
    "about 46 bits sent",
    "gamma = 1",
    "at B = 150 the error",
    "n = k = 50, d = 1000, ridge 0.001, 150 steps",
    "the same data, 8 seeds",
    "in 1e-4",
    "(B = 200)",
    "at B = 350 proposed and OSGC",
    "at n = 100 it takes",
    "up to 6 bits per worker",
    "at 3 bits (a:",
    "at 5 bits (b)",
    "n = 100: ahead",
    "at B = 350 and 200 not resolved",
    "at 200 and 350 it does not",
    "from 4 bits on; the paper's d is 3.4 million",
    "workers with 2 bits",
    "omega > 1",
    "1 / (1 - p)",
    "1-bit SGC",
    "d - 1 = 9,801",
    "8 runs instead of 50",
    "0.005 of the balanced one",
    "2^r - 1 levels",
    "its rate of 0.05 acts",
    "about 63 of them (100,000 images, 50 partitions, batches of 32)",
    "a rate of about 3;",
    "about 63 draws",
    "with weight 1,",
    "Lemma 1",
    "to ±10,",
    "Panel p of figure 3 runs that setting",
    "all 10 mini-batches of a partition",
    "which is 0.5 on the mean gradient, with SGD, B = 150",
    "a loss of 10:",
    "With 5 bits (e)",
    "one-shot detector of 15,400 parameters",
    "digits 0, 1 and 2 of MNIST",
    "scenes of 32 x 32 pixels",
    "n = k = 50, B = 200, 200 steps of Adam, 4 seeds",
    "the first of 200 that were held out",
    "a score of 0.3 or more",
    "on all 200, boxes",
    "scaled to 96 x 96",
    "objects, 0 for one",
    "found with 0.98 by SGD and proposed and with 0.77 by SGC",
    "(figure 4)",
    "figure 2c",
    "same workers (1 + Exp(psi_i), deadline 1.1)",
    "fails as before (2.31)",
    "at the one rate 0.05,",
]


def full_size_facts():
    """What is said of the runs on a GPU: gaps to proposed, with three digits."""

    def behind(panel, scheme, sign=""):
        row = one("cagc-fig3", panel=panel, scheme=scheme, rates="tuned")
        return f"{row['gap'] if sign else abs(row['gap']):{sign}.3f} ± {row['gap_half']:.3f}"

    def sent(panel, scheme):
        return one("cagc-fig3", panel=panel, scheme=scheme, rates="tuned")["bits_a_step"]

    saved = {f"{100 * (1 - sent(panel, 'OSGC') / sent(panel, 'proposed')):.0f}" for panel in "bc"}
    hasty = {line["scheme"]: line for line in GPU["summary"] if line["task"] == "ResNet-50" and line["rate"] == 0.3}
    noise = [one("cagc-fig3", panel=panel, scheme=scheme, rates="tuned") for panel in "bc" for scheme in ("OSGC", *VARIANTS)]
    assert all(abs(row["gap"]) <= row["gap_half"] for row in noise)  # not resolved
    assert one("cagc-fig3", panel="b", scheme="SGC", rates="tuned")["diverged"] == 1
    return [
        f"OSGC less proposed is {behind('b', 'OSGC', '+')}; GPT-2: {behind('c', 'OSGC', '+')}".replace("+-", "-"),
        f"OSGC sends {' to '.join(sorted(saved))} % fewer bits",
        f"(by {behind('b', 'IS-SGD')} and {behind('c', 'IS-SGD')})",
        f"(by {behind('b', 'SGC')}, where one run in 8 diverged, and {behind('c', 'SGC')})",
        f"SGD is {behind('b', 'SGD')} below proposed",
        f"at 0.3, {hasty['OSGC']['diverged']} of 8 of OSGC and {hasty['proposed']['diverged']} of 8 of proposed",
    ]


def test_the_figure_draws_the_runs_that_were_made():
    """The file in the package is the benchmark's result, condensed."""
    from unstraggle.papers.quantized_osgc import full_size

    assert json.loads(json.dumps(full_size.condensed(GPU))) == full_size.known()
    assert all(line["seeds"] >= 5 for line in GPU["summary"] if line["chosen"])
    chosen = {(line["task"], line["scheme"]) for line in GPU["summary"] if line["chosen"]}
    assert {(task, scheme) for task in full_size.PANELS.values() for scheme in ("OSGC", "proposed", "SGC", "IS-SGD")} <= chosen


def test_every_figure_takes_ten_minutes_at_most():
    """On two cores, as `python -m benchmarks reproducing` has timed them."""
    assert TIMES.keys() == FIGURES.keys() and max(row["seconds"] for row in TIMES.values()) < 600


def test_dynamic_programming_takes_less_time_than_the_paper_s_algorithm():
    """As the page says; processor time, as figure 1 was made."""
    assert all(row["dp s"] < row["subsets s"] for row in tables.rows_of("cagc-fig1") if row["n"] == 100 and row["B/n"] > 2)


def test_every_number_of_paper_c_s_page():
    facts = (
        allocation_facts()
        + training_facts()
        + memory_facts()
        + made_facts()
        + missed_facts()
        + detection_facts()
        + error_facts()
        + logistic_facts()
        + full_size_facts()
    )
    assert left_over(read("quantized_osgc"), facts, CAGC_SETTINGS) == []
