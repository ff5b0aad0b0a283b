"""Every number on the pages of papers A and B is in a result beside it, or is a setting that is named here."""

import pytest

from .page_numbers import left_over, read, tables


@pytest.mark.parametrize("paper", ["block_coordinate", "mmc_clustering", "quantized_osgc"])
def test_tables_are_what_the_results_say(paper):
    assert tables.filled(read(paper)) == read(paper), "run: python papers/tables.py"


# Paper B


def percent(value, digits=1):
    return f"{100 * value:.{digits}f} %"


def block_facts():
    claim = {(row["claim"], row["where"]): row["value"] for row in tables.rows_of("bcgc-claims")}
    many, fast = "N=50, mu=1e-3", "N=20, mu=10^-2.6"
    a, b = tables.rows_of("bcgc-fig4a")[-1], tables.rows_of("bcgc-fig4b")[-1]
    sizes = {row["method"]: row for row in tables.rows_of("bcgc-fig3")}
    share = [claim[f"share of the first and last block, {name}", "N=20, mu=1e-3"] for name in ("optimum", "x(t)", "x(f)")]
    closed = [row for name in ("bcgc-fig4a", "bcgc-fig4b") for row in tables.rows_of(name)]
    every = [row[name] / row["optimum"] - 1 for row in closed for name in ("x(t)", "x(f)")]
    bounds = [claim[f"Theorem 4's bound for {name}", many] for name in ("x(t)", "x(f)")]
    lost = {n: claim["relative error of equation 8", f"N={n}"] for n in (30, 35)}
    return [
        f"{percent(claim['saving of x(t) over the best baseline (Ferdinand, L/2 layers)', many])} over the best",
        f"{percent(claim['saving of x(t) over single block', many])} over the best single block",
        f"{percent(1 - a['x(t)'] / a['Tandon, tuned'])} over Tandon with a tuned slowdown",
        f"{percent(claim['saving of x(t) over the best baseline (Tandon, slowdown 6)', fast])} over the best",
        f"{percent(claim['saving of x(t) over single block', fast])} over the single block",
        f"{percent(1 - b['x(t)'] / b['Tandon, tuned'])} over Tandon tuned",
        f"{percent(claim['saving of the optimum over Tandon, tuned', many])} at N = 50, "
        f"{percent(claim['saving of the optimum over Tandon, tuned', fast])} at mu = 10^-2.6",
        f"{100 * share[0]:.0f} % for the optimum; {100 * share[1]:.0f} and {100 * share[2]:.0f} % for x(t) and x(f)",
        f"{100 * min(every):.0f} to {100 * max(every):.0f} % above it",
        f"the bounds are {bounds[0]:,.0f} and {bounds[1]:.0f} at N = 50",
        f"are {claim['x(t) over the optimum', many]:.2f} and {claim['x(f) over the optimum', many]:.2f} of the optimum",
        f"N = 30 ({100 * lost[30]:.0f} % wrong) and N = 35 ({100 * lost[35]:.0f} % wrong)",
        f"puts {sizes['optimum']['s=19']:,} coordinates",
        *carried_facts(),
        "0.25 and 1 need {:g} for four coordinates with s = 1, {:g} with s = 2, and {:g} with s = (1, 1, 2, 2)".format(
            *(row["runtime"] for row in tables.rows_of("bcgc-fig1"))
        ),
    ]


def carried_facts():
    """Of rounds that follow one another."""
    found = {row["method"]: row for row in tables.rows_of("bcgc-carry")}
    ours, rival = found["optimum"], found["Tandon, tuned"]
    gains = [100 * (1 - ours[key] / rival[key]) for key in ("carry-over", "free, exact")]
    return [
        f"{tables.about('bcgc-carry')['rounds']:,} rounds that follow one another",
        f"is {gains[0]:.0f} %, not {gains[1]:.0f} %",
    ]


BLOCK_SETTINGS = [
    "## Figures 1 and 2: an example (N = 4)",
    "figure 2 shows two vectors",
    "unit of work takes 0.1, 0.1,",
    "the number of workers N (mu = 1e-3)",
    "against log10 mu (N = 20)",
    "block sizes (N = 20, mu = 1e-3)",
    "Carry-over (N = 20, mu = 1e-3)",
    "## Figure 3:",
    "GLOBECOM 2021",
    "doi 10.1109/GLOBECOM46510.2021.9685858",
    "tolerate 0, 1, ..., N - 1 stragglers",
    "t0 = 50, L = 20,000 coordinates, M = 50 samples, b = 1 cycle",
    "in 1e7",
    "agree to 3 coordinates",
    "the authors' solution 6,209",  # in the authors' file
    "save 37 % at N = 50",
    "fixed at 6",
    "slowdown 6",
    "and 44 % at mu",
    "10^-2.6",
    "10^-2.8",
    "10^-3",
    "44 % needs",
    "at N <= 20; reversed from N = 30 on, and at N = 20",
    "less than 1 %",
    "Theorem 4",
    "1 / (mu t0), which is 20 here",
    "at N = 10 and 20",
    "equation 8 gives E[1 / T_(n)]",
    "sums 1 / i, not 1 / n; in the proof of Lemma 2",
    "n C(N, n - 1)",
    '"1 - 1" is q - 1',
    "within 0.1 %",
    "L/2 layers",
    "with 95 % intervals",
]


def test_every_number_of_paper_b_s_page():
    assert left_over(read("block_coordinate"), block_facts(), BLOCK_SETTINGS) == []


def test_what_paper_b_s_page_says_of_order_holds():
    for row in tables.rows_of("bcgc-fig4a"):
        assert (row["x(f)"] < row["x(t)"]) == (row["N"] <= 20) and row["x(f)"] < 1.01 * row["x(t)"]
        assert (row["Tandon, tuned"] < min(row["x(t)"], row["x(f)"])) == (row["N"] <= 20)
    for row in tables.rows_of("bcgc-fig4b"):
        assert (row["x(f)"] < row["x(t)"]) == (row["log10_mu"] <= -3) and row["x(f)"] < 1.01 * row["x(t)"]
        assert (row["Tandon, tuned"] < min(row["x(t)"], row["x(f)"])) == (row["log10_mu"] <= -3)
    baselines = ("single block", "Tandon, slowdown 6", "Ferdinand, L layers", "Ferdinand, L/2 layers")
    assert min(baselines, key=lambda name: tables.rows_of("bcgc-fig4a")[-1][name]) == "Ferdinand, L/2 layers"
    assert min(baselines, key=lambda name: tables.rows_of("bcgc-fig4b")[-1][name]) == "Tandon, slowdown 6"


# Paper A


def mmc_facts():
    one_of = {row["scheme"]: row for row in tables.rows_of("mmc-fig1")}
    front = {row["scheme"]: row for row in tables.rows_of("mmc-front")}
    other = {row["scheme"]: row for row in tables.rows_of("mmc-claims")}
    time = {name: f"{row['time']:.3f}" for name, row in one_of.items()}
    sent = {name: f"{row['load']:.1f}" for name, row in one_of.items()}
    wait, plain = one_of["wait for all"], one_of["UC-MMC"]
    fresh, rule, span = other["GC, fresh draws"], other["hybrid 1,5,10 by rule"], other["hybrid 1,5,10 by span"]
    halves = [(row["time_carried_ci95"][1] - row["time_carried_ci95"][0]) / 2 for row in one_of.values()]
    limit, best = tables.about("mmc-front")["work_conserving_limit"], min(row["time"] for row in front.values())
    least, more, pair, third = (
        front[name]
        for name in (
            "fractional repetition",
            "correlated 7-10 x4 by rule",
            "hybrid 1,10 x4 by rule",
            "correlated 3-10 x4 by rule",
        )
    )
    gains = [100 * (1 - plain[key] / wait[key]) for key in ("time", "time_carried")]
    return [
        f"{plain['time']:.3f}. The order",
        f"{one_of['GC']['time_exact']:.3f} and {sent['UC-MMC']}",
        f"would give {fresh['time']:.2f} and {other['UC-MMC, fresh draws']['load']:.0f}",
        f"no: {time['GC-MMC-2']} against {time['LCC']}",
        f"({time['GC-MMC-2 hybrid']}) and GC-MMC-1 ({time['GC-MMC-1']}) do match LCC",
        f"yes: {sent['GC-MMC-2']} for 40 workers",
        f"{one_of['GC-MMC-2']['load_cluster_stop']:.0f} if clusters stop",
        f"takes {time['wait for all']}**",
        f"GC takes {one_of['GC']['time'] / wait['time']:.1f} times longer",
        f"{time['LCC, 2 messages']} with {one_of['LCC, 2 messages']['load']:.0f} messages, {time['LCC, 10 messages']} with "
        f"{one_of['LCC, 10 messages']['load']:.0f}",
        f"{plain['time_carried']:.3f} instead of",
        f"({time['wait for all']}, where nothing is carried) falls from {gains[0]:.0f} to {gains[1]:.0f} %",
        f"UC-MMC takes {other['UC-MMC, 3 ms a message']['time']:.3f} and fractional repetition "
        f"{other['fractional repetition, 3 ms a message']['time']:.3f}",
        f"all {plain['load']:.0f} messages",
        f"takes {time['fractional repetition']} with {sent['fractional repetition']} messages",
        f"gains {100 * (1 - one_of['GC-MMC-1 by span']['time'] / one_of['GC-MMC-1']['time']):.1f} %",
        f"95 % ± {min(halves):.4f} to {max(halves):.4f}",
        f"({front['GC-MMC-1']['time']:.3f} at {front['GC-MMC-1']['load']:.1f} messages)",
        f"{pair['time']:.3f} at {pair['load']:.1f}",
        f"takes {rule['time']:.3f} with {rule['load']:.0f} messages by rule",
        f"{span['time']:.3f} with {span['load']:.0f} by span",
        f"By rule alone, {third['time']:.3f} needs {third['load']:.0f}",
        f"from {least['load']:.1f} to {more['load']:.0f} messages the time falls by "
        f"{100 * (1 - more['time'] / least['time']):.0f} %",
        f"less than {limit:.4f}",
        f"the fastest takes {best / limit:.1f} times that",
        *noise_facts(),
    ]


def noise_facts():
    gain = tables.about("mmc-claims")["noise_gain"]
    pair, three, seven, shared = ({key: f"{value:.3g}" for key, value in one.items()} for one in gain.values())
    worst = [f"{one['worst']:.0f}" for one in gain.values()]
    assert [len(name.split(",")) for name in gain] == [2, 3, 7, 1] and pair["worst"] == "1"
    return [
        f"at most {worst[0]} for the hybrid with orders 1, 10; for 1, 5, 10 by span the median is {float(three['median']):.1f} "
        f"and the worst {worst[1]}",
        f"for 1, 2, 3, 5, 7, 9, 10 they are {float(seven['median']):.1f} and {worst[2]}. GC-MMC-1 has "
        f"{float(shared['median']):.1f} and {worst[3]}.",
    ]


MMC_SETTINGS = [
    "Ulukus, 2019, [arXiv 1903.01974",
    "K = 40 workers and partitions, r = 10, one draw X = 0.01 + Exp(10) a worker",
    "(equation 5 of the paper",
    "half width of the 95 % interval",
    "(50,000 rounds that follow one another, ",
    "LCC, 2 messages",
    "LCC, 10 messages",
    "its reference 19, arXiv 1808.02240",
    "GC takes about 1.55 and UC-MMC sends about 106 messages (read off",  # of the paper's figure
    "GC-MMC-1",
    "GC-MMC-2",
    "7 of 30 messages in each cluster",
    "K - m - 1 = 5",
    "K - m + 1 = 5",
    "in example 1",
    "for all 40 workers",
    "of degree 78",
    "At 3 ms a message",
    "has rank 7, so no set of fewer than 7 messages",
    "1, 2 or 4 clusters",
    "all 1013 order vectors",
    "setting of figure 1:",
    "the best one above 45 messages",
    "with orders 1, 5, 10",
    "hold 1 and r",
    "Below 40 messages",
    "until 40 of the 400 tasks",
    "from 8 to 34 messages",
    'has "K - m = 6" messages where K = 6',
    "0 to l - 1, not l + 1",
    "Example 1, its thresholds 4, 5 and 8,",
    "all 495 eight-subsets",
    "over 80 survivor sets",
    "## Figure 1 ",
]


def test_every_number_of_paper_a_s_page():
    assert left_over(read("mmc_clustering"), mmc_facts(), MMC_SETTINGS) == []


def test_carry_over_leaves_the_order_of_paper_a_s_schemes():
    rows = [row for row in tables.rows_of("mmc-fig1") if "span" not in row["scheme"]]
    free, carried = (sorted(rows, key=lambda row: row[key]) for key in ("time", "time_carried"))
    assert [row["scheme"] for row in free] == [row["scheme"] for row in carried]
