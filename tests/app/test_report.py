"""report and compare: pages that stand alone, leave out what is missing, refuse what is no run, and work in a browser."""

import json
import re
import shutil

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.app.report import comparison, report, table, write_report
from unstraggle.app.report.compare import verdict
from unstraggle.app.report.workers import rows
from unstraggle.app.runs import Run, environment, read_run
from unstraggle.runtime.estimate import Split
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
    return tuple({"time": float(t), "exact": True, "messages": 4, **more} for t in times)


def sections(page):
    return re.findall(r'<section id="(\w+)"', page)


def test_a_run_writes_its_command_and_environment(runs):
    config = json.loads((runs / "all/config.json").read_text())
    assert config["command"][:3] == ["unstraggle", "run", "uncoded(4)"] and "--rounds" in config["command"]
    assert config["environment"]["versions"]["unstraggle"] and config["options"]["rounds"] == 40
    found = read_run(runs / "all")
    assert found.command.startswith("unstraggle run 'uncoded(4)' --engine virtual --latency 'ShiftedExponential")
    assert found.has_loss and found.steps[-1]["loss"] < found.steps[0]["loss"]
    assert found.steps[-1]["wall"] == pytest.approx(sum(step["time"] for step in found.steps))
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
    assert "On average 1.0 of 4 workers were not waited for" in page and "Cannot tell how late" in page
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
        ("steps.jsonl", ["verdict", "loss", "times", "split", "repeat"]),
        ("trace.jsonl", ["verdict", "times", "lateness", "timeline", "workers", "options", "repeat"]),
    ):
        folder = tmp_path / left
        folder.mkdir()
        shutil.copy(runs / "all" / left, folder)
        page = write_report(folder).read_text()
        assert sections(page) == expected, left
        assert "The command was not recorded" in page
    bare = report(Run(tmp_path, steps=({"time": 1.0},)))
    assert sections(bare) == ["verdict", "repeat"]


def test_records_of_a_training_make_a_report(tmp_path):
    info = Info(0, 0, 1.0, True, 0.2, (0, 2), (1,), (3,), 100, 0.0, 32, split=Split(0.1, 0.05, 0.04, 0.01)).to_dict()
    lines = [info | {"step": i, "repeat": r, "loss": 1 / (1 + i), "wall": 0.2 * i} for r in (0, 1) for i in range(10)]
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
        ({"steps.jsonl": "{}\n"}, 'needs "time"'),
        ({"steps.jsonl": '{"time": -1}\n'}, "seconds >= 0, but got -1"),
        ({"steps.jsonl": "[1]\n"}, "a step is a JSON object"),
        ({"steps.jsonl": 'x\n{"time": 1}\n'}, "line 1 is not JSON"),
        ({"steps.jsonl": '{"time": 1}\n', "config.json": "{"}, "config.json is not JSON"),
        ({"steps.jsonl": '{"time": 1}\n', "summary.json": "[]"}, "must hold a JSON object"),
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
    (tmp_path / "steps.jsonl").write_text('{"time": 1}\n{"time": 2}\n{"ti')
    found = read_run(tmp_path)
    assert len(found.steps) == 2 and "incomplete" in report(found)


def test_workers_late_and_lost_are_told_apart():
    times = np.ones((10, 3))
    times[:4, 1] = np.inf
    times[:, 2] = 2.0
    trace = from_seconds(times)
    lost = tuple({"time": 1.0, "lost": [1] if number < 1 else []} for number in range(10))
    by_worker = {row.worker: row for row in rows(Run(None, steps=lost, trace=trace))}
    assert by_worker[1].lost == 0.1 and by_worker[1].late == pytest.approx(0.3)
    assert by_worker[2].late == 0 and by_worker[2].factor == pytest.approx(2.0)
    named = tuple({"waited": 1.0, "time": 1.0, "late": [2], "dead": [0]} for _ in range(4))
    by_worker = {row.worker: row for row in rows(Run(None, steps=named))}
    assert (by_worker[2].late, by_worker[0].lost, by_worker[1].late) == (1, 1, 0)


def test_compare(runs, tmp_path):
    done = run("compare", str(runs / "all"), str(runs / "coded"), "-o", str(tmp_path))
    assert "uncoded(4)" in done.stdout and max(map(len, done.stdout.splitlines()[:-1])) <= 80
    page = (tmp_path / "compare.html").read_text()
    assert sections(page) == ["verdict", "table", "loss", "times", "split", "repeat"]
    data = json.loads(run("compare", str(runs / "all"), str(runs / "coded"), "-o", str(tmp_path), "--json").stdout)
    first, second = data["runs"]
    assert first["ratio"] == 1 and second["ratio"] == pytest.approx(second["time"]["mean"] / first["time"]["mean"])
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
    slow = Run(tmp_path / "slow", summary={"code": "slow"}, steps=tuple(step | {"time": 9.0} for step in slow.steps))
    wrong = tuple(step | {"time": 0.01, "exact": False} for step in good.steps)
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
