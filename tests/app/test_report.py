"""report and compare: pages that stand alone, leave out what is missing, refuse what is no run, and work in a browser."""

import json
import re
import shutil

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.app.report import comparison, report, table, write_report
from unstraggle.app.report.compare import verdict
from unstraggle.app.report.page import key_numbers
from unstraggle.app.report.workers import rows
from unstraggle.app.runs import Run, environment, read_run
from unstraggle.app.steps import writing
from unstraggle.runtime.step import Split
from unstraggle.torch.info import Info
from unstraggle.trace import from_seconds

from ..browser import Browser, background, needs_chromium
from ..commands import run

LATENCY = "ShiftedExponential(rate=20, shift=0.01)"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that waits for all and one that does not, as the command writes them."""
    folder = tmp_path_factory.mktemp("runs")
    for name, code in (("all", "uncoded(4)"), ("coded", "cyclic_repetition(4, s=1)")):
        run(
            "run",
            code,
            "--engine",
            "virtual",
            "--latency",
            LATENCY,
            "--rounds",
            "40",
            "--samples",
            "200",
            "-o",
            str(folder / name),
        )
    return folder


def steps(count=30, seed=0, **more):
    times = 0.1 + np.random.default_rng(seed).exponential(0.05, count)
    return tuple({"wall": float(t), "wait": float(t), "exact": True, "messages": 4, **more} for t in times)


def sections(page):
    return re.findall(r'<section id="(\w+)"', page)


def test_a_run_writes_its_command_and_environment(runs):
    config = json.loads((runs / "all/config.json").read_text())
    assert config["command"][:3] == ["unstraggle", "run", "uncoded(4)"] and "--rounds" in config["command"]
    assert config["environment"]["versions"]["unstraggle"] and config["options"]["rounds"] == 40
    found = read_run(runs / "all")
    assert found.command.startswith("unstraggle run 'uncoded(4)' --engine virtual --latency 'ShiftedExponential")
    assert found.has_loss and found.steps[-1]["loss"] < found.steps[0]["loss"]
    assert all(step["wall"] == pytest.approx(step["wait"]) for step in found.steps), "on a sampled clock only rounds take time"
    assert "node" not in environment(), "names of hosts are nobody's business"


def test_report_of_a_run_has_everything_verdict_first(runs):
    done = run("report", str(runs / "all"))
    assert done.stdout.strip() == f"Written: {runs / 'all' / 'report.html'}"
    page = (runs / "all/report.html").read_text()
    expected = ["verdict", "loss", "times", "lateness", "timeline", "split", "workers", "options", "repeat"]
    assert sections(page) == expected
    assert "Transient stragglers" in page and "unstraggle run &#x27;uncoded(4)&#x27;" in page
    assert page.count("<svg role=") == 5 and json.loads(run("report", str(runs / "all"), "--json").stdout)["report"]


def test_report_of_a_code_says_who_was_not_waited_for(runs):
    page = report(read_run(runs / "coded"))
    verdict = page[page.index('<section id="verdict"') :].partition("</section>")[0]
    did = re.search(r"<strong>(.*?)</strong>", verdict)[1]
    assert did.startswith("40 steps, 100 % of them with the exact gradient: ") and "were spent waiting for the round" in did
    assert did.endswith("On average 1.0 of 4 workers were not waited for.") and verdict.count("<strong>") == 1
    assert "Cannot tell" not in verdict and "a comparison with a run that waits for all, such as one of uncoded(4)" in verdict
    assert "options" not in sections(page)


def test_pages_stand_alone_and_are_the_same_every_time(runs):
    page = report(read_run(runs / "all"))
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page) and "@import" not in page and "url(http" not in page
    assert "<script" not in page and "default-src 'none'" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page == report(read_run(runs / "all"))


def test_what_is_missing_is_left_out(tmp_path, runs):
    for left, expected in (
        ("steps.jsonl", ["verdict", "loss", "times", "split", "workers", "repeat"]),
        ("trace.jsonl", ["verdict", "times", "lateness", "timeline", "workers", "options", "repeat"]),
    ):
        folder = tmp_path / left
        folder.mkdir()
        shutil.copy(runs / "all" / left, folder)
        page = write_report(folder).read_text()
        assert sections(page) == expected, left
        assert "The command was not recorded" in page
    bare = report(Run(tmp_path, steps=({"wait": 1.0},)))
    assert sections(bare) == ["verdict", "repeat"]


def test_records_of_a_training_make_a_report(tmp_path):
    who = {"used": (0, 2), "late": (1,), "lost": (3,), "split": Split(0.1, 0.05, 0.05, 0.01, 0.09)}
    info = Info(step=0, wall=0.3, wait=0.2, exact=True, samples=32, **who).to_dict()
    lines = [info | {"step": i, "repeat": r, "loss": 1 / (1 + i)} for r in (0, 1) for i in range(10)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(tmp_path).read_text()
    assert sections(page) == ["verdict", "loss", "times", "split", "workers", "repeat"]
    assert "Lost at times: worker 3." in page and "On average 2.0 of 4 workers were not waited for" in page


def test_names_from_a_run_are_not_code(tmp_path):
    evil = "<script>alert(1)</script>"
    page = report(Run(tmp_path, config={"command": [evil]}, summary={"code": evil}, steps=steps()))
    assert "<script" not in page and "&lt;script&gt;" in page
    page = comparison([Run(tmp_path / "a", summary={"code": evil}, steps=steps()), Run(tmp_path / "b", steps=steps())])
    assert "<script" not in page


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (None, "is not there"),
        ({}, "has neither"),
        ({"steps.jsonl": "{}\n"}, 'needs "wait"'),
        ({"steps.jsonl": '{"wait": 0, "wall": -1}\n'}, "seconds >= 0, but got -1"),
        ({"steps.jsonl": "[1]\n"}, "a step is a JSON object"),
        ({"steps.jsonl": 'x\n{"wait": 1}\n'}, "line 1 is not JSON"),
        ({"steps.jsonl": '{"wait": 1}\n', "config.json": "{"}, "config.json is not JSON"),
        ({"steps.jsonl": '{"wait": 1}\n', "summary.json": "[]"}, "must hold a JSON object"),
        ({"trace.jsonl": "hello\n"}, "is not a trace"),
    ],
    ids=range(9),
)
def test_bad_directories(tmp_path, files, words):
    folder = tmp_path / "run"
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(Invalid, match=re.escape(words)):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_bad_directories_on_the_command_line(tmp_path):
    done = run("report", str(tmp_path), check=False)
    assert done.returncode == 2 and "has neither" in done.stderr and "Traceback" not in done.stderr
    done = run("compare", str(tmp_path), check=False)
    assert done.returncode == 2
    assert all("Example:" in run(command, "--help").stdout for command in ("report", "compare"))


def test_a_torn_last_line_is_left_out_and_said(tmp_path):
    (tmp_path / "steps.jsonl").write_text('{"wait": 1}\n{"wait": 2}\n{"wa')
    found = read_run(tmp_path)
    assert len(found.steps) == 2 and "incomplete" in report(found)


@pytest.mark.parametrize("short", [True, False])
def test_a_full_disk_ends_the_steps_and_not_the_run(short, tmp_path, caplog):
    """The line that did not fit is torn, or missing; the next ones do not follow it, although there may be room again."""
    with writing(tmp_path / "steps.jsonl") as keep:
        keep({"wait": 1})
        whole, keep._file = keep._file, Full(keep._file, short)
        keep({"wait": 2})
        keep._file = whole
        keep({"wait": 3})
    assert caplog.text.count("and the run goes on without them") == 1
    assert [step["wait"] for step in read_run(tmp_path).steps] == [1]


class Full:
    """A file on a disk that has room for five bytes, or none."""

    def __init__(self, file, short):
        self.file, self.short = file, short

    def write(self, line):
        if not self.short:
            raise OSError(28, "No space left on device")
        return self.file.write(line[:5])


def test_workers_late_and_lost_are_told_apart():
    times = np.ones((10, 3))
    times[:4, 1] = np.inf
    times[:, 2] = 2.0
    trace = from_seconds(times)
    lost = tuple({"wait": 1.0, "lost": [1] if number < 1 else []} for number in range(10))
    by_worker = {row.worker: row for row in rows(Run(None, steps=lost, trace=trace))}
    assert by_worker[1].lost == 0.1 and by_worker[1].late == pytest.approx(0.3)
    assert by_worker[2].late == 0 and by_worker[2].factor == pytest.approx(2.0)
    named = tuple({"wait": 1.0, "late": [2], "lost": [0]} for _ in range(4))
    by_worker = {row.worker: row for row in rows(Run(None, steps=named))}
    assert (by_worker[2].late, by_worker[0].lost, by_worker[1].late) == (1, 1, 0)


def test_a_trace_alone_does_not_say_who_was_lost(tmp_path):
    times = np.ones((10, 3))
    times[:4, 1] = np.inf
    alone = Run(tmp_path, trace=from_seconds(times))
    assert [row.lost for row in rows(alone)] == [None] * 3
    page = report(alone)
    table = page[page.index('<section id="workers"') :].partition("</section>")[0]
    assert "40.0 %" in table and table.count("<td>-</td>") == 3 and "<h2>Late workers</h2>" in table
    assert "Lost at times" not in page and "mean wait" in page and "mean step" not in page


def test_the_mean_step_is_wall_clock_and_not_the_wait(tmp_path):
    slow = tuple(step | {"wall": step["wait"] + 1.0} for step in steps())
    fast = steps(seed=1)
    numbers = dict(key_numbers(Run(tmp_path, steps=slow)))
    assert float(numbers["mean step"].split()[0]) > 1.1 and float(numbers["mean wait"].split()[0]) < 0.3
    both = [Run(tmp_path / name, summary={"code": name}, steps=each) for name, each in (("slow", slow), ("fast", fast))]
    first, second = table(both)
    assert first["wall"]["mean"] > 1.1 > 0.3 > first["wait"]["mean"] and second["ratio"] < 0.2
    assert verdict(table(both)).startswith("Fastest with the exact gradient in every step: fast,")
    assert "wall-clock time of a step (s)" in comparison(both)


def test_runs_without_wall_clock_are_compared_by_their_waits(tmp_path):
    bare = Run(tmp_path / "bare", summary={"code": "bare"}, trace=from_seconds(0.1 + 0 * np.ones((30, 3))))
    timed = Run(tmp_path / "timed", summary={"code": "timed"}, steps=tuple(step | {"wall": 9.0} for step in steps()))
    rows = table([bare, timed])
    assert [row["clock"] for row in rows] == ["wait", "wait"] and rows[1]["ratio"] < 2 and rows[1]["wall"] is None
    assert "s of waiting per round" in verdict(rows) and "wait for a round (s)" in comparison([bare, timed])


def test_files_from_before_the_one_vocabulary_are_read(tmp_path):
    """A training wrote its wait as "waited" and "time", and the seconds so far as "wall"; `run` had no wall-clock."""
    old = {"waited": 0.2, "time": 0.2, "late": [1], "dead": [3], "dropped": 2, "split": {"compute": 0.1, "wait": 0.1}}
    lines = [old | {"repeat": r, "wall": 0.5 * (i + 1), "loss": 1.0} for r in (0, 1) for i in range(4)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_run(tmp_path)
    assert found.clock == "wall" and [step["wall"] for step in found.steps] == [0.5] * 8
    assert {name: found.steps[5][name] for name in ("wait", "late", "lost", "stale")} == {
        "wait": 0.2,
        "late": [1],
        "lost": [3],
        "stale": 2,
    }
    assert "split" not in sections(report(found))
    (tmp_path / "steps.jsonl").write_text('{"time": 0.2, "wall": 0.2, "late": 0}\n{"time": 0.3, "wall": 0.5, "late": 1}\n')
    found = read_run(tmp_path)
    assert found.clock == "wait" and [(step["wait"], step["stale"]) for step in found.steps] == [(0.2, 0), (0.3, 1)]
    assert "a wait of 0.25 s each" in report(found)


def test_what_was_not_recorded_is_not_zero(tmp_path):
    assert "exact gradient" not in report(Run(tmp_path, steps=({"wait": 1.0, "wall": 1.0},) * 3))


def test_nobody_is_fastest_within_the_interval(tmp_path):
    def named(name, times):
        records = tuple({"wall": t, "wait": t, "exact": True} for t in times)
        return Run(tmp_path / name, summary={"code": name}, steps=records)

    one, two = named("one", [0.10, 0.30, 0.20, 0.25]), named("two", [0.11, 0.28, 0.24, 0.26])
    said = verdict(table([one, two]))
    assert said.startswith("Which is fastest with the exact gradient in every step is not resolved: one (")
    assert "two (" in said and "Fastest" not in said
    assert "not resolved" in verdict(table([named("one", [0.1]), named("two", [9.0])])), "a single step has no interval"
    assert verdict(table([one, named("slow", [3.0, 3.1, 3.2])])).startswith("Fastest")


def test_no_kind_of_straggler_from_one_round(tmp_path):
    page = report(Run(tmp_path, trace=from_seconds(np.array([[1.0, 1.0, 5.0]]))))
    assert "Persistent" not in page and "Cannot tell what kind of stragglers there are" in page
    assert "Record at least 5 rounds" in page and "replace" not in page


def test_compare(runs, tmp_path):
    done = run("compare", str(runs / "all"), str(runs / "coded"), "-o", str(tmp_path))
    assert "uncoded(4)" in done.stdout and max(map(len, done.stdout.splitlines()[:-1])) <= 80
    page = (tmp_path / "compare.html").read_text()
    assert sections(page) == ["verdict", "table", "loss", "times", "split", "repeat"]
    data = json.loads(run("compare", str(runs / "all"), str(runs / "coded"), "-o", str(tmp_path), "--json").stdout)
    first, second = data["runs"]
    assert first["ratio"] == 1 and second["ratio"] == pytest.approx(second["wall"]["mean"] / first["wall"]["mean"])
    assert second["ratio_ci95"][0] < second["ratio"] < second["ratio_ci95"][1]


def test_compare_tells_runs_of_the_same_code_apart(tmp_path):
    one, two = (Run(tmp_path / name, summary={"code": "uncoded(4)"}, steps=steps(seed=seed)) for seed, name in enumerate("ab"))
    assert [row["run"] for row in table([one, two])] == ["uncoded(4) in a", "uncoded(4) in b"]
    with pytest.raises(Invalid, match="same directory"):
        comparison([one, one])
    with pytest.raises(Invalid, match="at least two"):
        comparison([one])


def test_a_run_that_is_fast_and_wrong_does_not_win(tmp_path):
    good, slow = (Run(tmp_path / name, summary={"code": name}, steps=steps()) for name in ("good", "slow"))
    slow = Run(tmp_path / "slow", summary={"code": "slow"}, steps=tuple(step | {"wall": 9.0} for step in slow.steps))
    wrong = tuple(step | {"wall": 0.01, "exact": False} for step in good.steps)
    said = verdict(table([slow, good, Run(tmp_path / "wrong", summary={"code": "wrong"}, steps=wrong)]))
    assert said.startswith("Fastest with the exact gradient in every step: good,")
    assert "wrong takes 0.01 s, but 0 % of its gradients are exact." in said


def test_the_ratio_covers_the_truth():
    """Of 200 pairs of equal runs, the 95 % interval of the ratio has 1 in it in about 95 %."""
    hits = 0
    for seed in range(200):
        one, two = (
            Run(None, summary={"code": "a"}, steps=steps(60, 2 * seed)),
            Run(None, summary={"code": "b"}, steps=steps(60, 2 * seed + 1)),
        )
        low, high = table([one, two])[1]["ratio_ci95"]
        hits += low <= 1 <= high
    assert 180 <= hits <= 198


@needs_chromium
def test_report_in_a_browser(runs, tmp_path):
    write_report(runs / "all")
    with Browser() as browser:
        colours = {}
        for scheme in ("light", "dark"):
            browser.open((runs / "all/report.html").as_uri(), scheme)
            colours[scheme] = background(browser)
            browser.picture(tmp_path / f"{scheme}.png")
            assert browser.value("document.querySelector('main section').id") == "verdict"
            assert browser.value("document.querySelectorAll('figure svg').length") == 5
            assert browser.value("[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 80)")
            assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out to the right"
            assert browser.value("document.querySelector('svg image, svg path') !== null")
        assert min(colours["light"]) > 230 and max(colours["dark"]) < 50
        assert browser.complaints == []
        assert all(url.startswith(("file://", "data:")) for url in browser.requests) and browser.requests
    assert (tmp_path / "dark.png").stat().st_size > 30_000
