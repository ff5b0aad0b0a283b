"""The live page: what it shows and serves, that it only reads, that it ends, and that it works in a real browser."""

import http.client
import json
import re
import threading
import time
import urllib.request
from types import SimpleNamespace
from urllib.parse import urlsplit

import numpy as np
import pytest

import unstraggle as us
from unstraggle.app.live import LivePage, server
from unstraggle.app.live.server import BEHIND, LISTENERS
from unstraggle.app.live.state import EVENTS, STEPS
from unstraggle.runtime.estimate import Estimate
from unstraggle.torch.info import Info

from ..browser import Browser, background, needs_chromium
from ..commands import run

COLOURS_OF_THE_MAP = """(() => {
    const map = document.getElementById('map'), pixels = map.getContext('2d').getImageData(0, 0, map.width, map.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size;
})()"""

CODE = us.codes.cyclic_repetition(4, s=1)
HANG = 600
"""Seconds after which a test ends that waits for what never comes."""


def estimate(step=0, missing=(3,), lost=(), **more):
    got = ~np.isin(CODE.messages.worker, [*missing, *lost])
    used = tuple(worker for worker in range(4) if worker not in (*missing, *lost))
    late = tuple(worker for worker in missing if worker not in lost)
    record = {"wall": 0.5, "wait": 0.25, "exact": True, "bytes": 2400, "used": used, "late": late, "lost": tuple(lost), **more}
    return Estimate(tracks=np.zeros((1, 2)), got=got, arrivals=np.where(got, 0.2, np.inf), step=step, round=step, **record)


def get(page, path, method="GET", **headers):
    """(status, headers, body)"""
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=HANG)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


class Stream:
    """The events that a browser gets, in a thread."""

    def __init__(self, page):
        self.events, self._answer = [], urllib.request.urlopen(page.url + "events", timeout=HANG)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        with self._answer:
            kind = None
            for line in self._answer:
                name, _, value = line.decode().strip().partition(": ")
                kind = value if name == "event" else kind
                if name == "data":
                    self.events.append((kind, json.loads(value)))

    def wait(self, count):
        end = time.monotonic() + HANG
        while len(self.events) < count:
            assert time.monotonic() < end, self.events
            time.sleep(0.01)
        return self.events


def test_events_begin_with_everything_and_go_on_step_by_step():
    with LivePage(title="a run") as page:
        page.add(estimate(0), loss=2.0)
        stream = Stream(page)
        stream.wait(1)
        page.add(estimate(1, missing=(), lost=(2,)), loss=1.5)
        (first, snapshot), (second, step) = stream.wait(2)[:2]
        assert (first, second) == ("snapshot", "step") and snapshot["title"] == "a run"
        assert [record["step"] for record in snapshot["records"]] == [0] and snapshot["records"][0]["late"] == [3]
        assert step["record"]["lost"] == [2] and step["record"]["used"] == [0, 1, 3] and step["totals"]["steps"] == 2
        assert step["workers"][3] == {"used": 1, "late": 1, "lost": 0}
        assert step["events"] == [{"step": 1, "kind": "lost", "text": "worker 2 is lost"}]
    assert stream.wait(3)[-1][0] == "end"
    stream.thread.join(5)
    assert not stream.thread.is_alive()


def test_the_log_says_what_happened():
    with LivePage() as page:
        for one in (
            estimate(0, lost=(1, 2)),
            estimate(1, lost=(2,), exact=False),
            estimate(2, damaged=2),
            estimate(3, exact=False, skipped=True),
        ):
            page.add(one)
        said = [(event["step"], event["text"]) for event in page.state.events]
    assert said == [
        (0, "worker 1 is lost"),
        (0, "worker 2 is lost"),
        (1, "worker 1 is back"),
        (1, "the gradient is not exact"),
        (2, "worker 2 is back"),
        (2, "2 damaged messages refused"),
        (3, "no gradient could be had: the step was skipped"),
    ]


def test_metrics_are_what_prometheus_reads():
    with LivePage() as page:
        for step in range(3):
            page.add(estimate(step, lost=(2,) if step == 2 else ()), loss=1.0 / (1 + step))
        status, headers, text = get(page, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert text.endswith("\n") and all(
        re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{worker="\d+"\})? [-+.\de]+', line) for line in text.splitlines()
    )
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["unstraggle_steps_total"]) == 3 and float(values["unstraggle_wall_seconds_sum"]) == 1.5
    assert float(values["unstraggle_wait_seconds_sum"]) == 0.75
    assert float(values['unstraggle_worker_late_steps_total{worker="3"}']) == 3
    assert values['unstraggle_worker_up{worker="2"}'] == "0" and values['unstraggle_worker_up{worker="0"}'] == "1"
    assert float(values["unstraggle_loss"]) == pytest.approx(1 / 3)
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {re.sub(r"\{.*|_sum$|_count$", "", name) for name in values} == named


def test_training_steps_are_shown_as_well():
    info = Info(step=7, wall=0.3, wait=0.1, exact=True, loss=0.5, used=(0, 1), late=(2,), lost=(3,), bytes=100, samples=32)
    with LivePage() as page:
        page.add(info)
        record = page.state.records[0]
    expected = {"step": 7, "loss": 0.5, "late": [2], "lost": [3], "wall": 0.3, "wait": 0.1}
    assert {name: record[name] for name in expected} == expected


def test_losses_that_are_no_numbers_are_left_out():
    with LivePage() as page:
        page.add(estimate(0), loss=float("nan"))
        assert json.loads(json.dumps(page.state.snapshot(), allow_nan=False))["records"][0]["loss"] is None
        with pytest.raises(us.Invalid, match="an Estimate or an Info"):
            page.add({"step": 1})


def test_it_only_reads():
    with LivePage() as page:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert get(page, "/", method)[0] == 405
        assert get(page, "/../../etc/passwd")[0] == 404 and get(page, "/server.py")[0] == 404
        status, headers, body = get(page, "/", "HEAD")
        assert status == 200 and body == "" and int(headers["Content-Length"]) > 500
        assert "default-src 'none'" in headers["Content-Security-Policy"] and headers["X-Content-Type-Options"] == "nosniff"
        assert "unsafe" not in headers["Content-Security-Policy"]


def test_it_is_for_this_machine_unless_told_otherwise():
    with LivePage() as page:
        assert urlsplit(page.url).hostname == "127.0.0.1" and page._server.server_address[0] == "127.0.0.1"
        assert get(page, "/metrics", Host="evil.example:80")[0] == 403, "a foreign name that leads here (DNS rebinding)"
        assert get(page, "/metrics", Host="localhost:1")[0] == 200
    with LivePage(host="0.0.0.0") as page:
        connection = http.client.HTTPConnection("127.0.0.1", page._server.server_address[1], timeout=HANG)
        connection.request("GET", "/metrics", headers={"Host": "cluster.example"})
        assert connection.getresponse().status == 200
        connection.close()


def test_bad_ports():
    with pytest.raises(us.Invalid, match="to 65535"):
        LivePage(port=70000)
    with LivePage() as page, pytest.raises(us.Invalid, match="Use port=0"):
        LivePage(port=page._server.server_address[1])


def test_memory_is_bounded_and_slow_browsers_are_cut_off():
    with LivePage() as page:
        slow = page.listen()
        for step in range(BEHIND + STEPS):
            page.add(estimate(step, damaged=1))
        assert len(page.state.records) == STEPS and len(page.state.events) == EVENTS and page.steps == BEHIND + STEPS
        assert slow.qsize() <= BEHIND + 2
        everyone = [page.listen() for _ in range(LISTENERS + 1)]
        assert everyone[-1] is None and get(page, "/events")[0] == 503
        for listener in everyone[:-1]:
            page.leave(listener)


def test_steps_from_one_thread_reach_browsers_that_come_meanwhile_once():
    with LivePage() as page:
        feeder = threading.Thread(target=lambda: [page.add(estimate(step)) for step in range(300)])
        feeder.start()
        streams = [Stream(page) for _ in range(4)]
        feeder.join()
    for stream in streams:
        stream.thread.join(HANG)
        (kind, snapshot), *rest = stream.events
        seen = [record["step"] for record in snapshot["records"]] + [m["record"]["step"] for k, m in rest if k == "step"]
        assert kind == "snapshot" and seen == list(range(300))


def test_a_browser_that_comes_in_the_middle_of_a_step_gets_it_once(monkeypatch):
    with LivePage() as page:
        found, add = [], page.state.add
        visitor = threading.Thread(target=lambda: found.append(page.listen()))

        def slow(*step):
            told = add(*step)
            visitor.start()
            time.sleep(0.1)  # the visitor would have come in by now, and got the step twice
            return told

        monkeypatch.setattr(page.state, "add", slow)
        page.add(estimate(0))
        visitor.join(HANG)
        assert found[0].qsize() == 1 and b'"step":0' in found[0].get()
        page.leave(found[0])


def test_closing_waits_for_nobody_and_may_be_done_twice(monkeypatch):
    page, slept = LivePage(), []
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    page.close()
    page.close()
    assert slept == [] and not page._thread.is_alive()  # nobody is there to say goodbye to


def test_run_live(tmp_path):
    done = run("run", "uncoded(2)", "--engine", "virtual", "--rounds", "3", "--live", "--json")
    assert re.match(r"Live at http://127\.0\.0\.1:\d+/\n", done.stderr) and json.loads(done.stdout)["rounds"] == 3
    done = run("run", "uncoded(2)", "--engine", "virtual", "--live-port", "70000", check=False)
    assert done.returncode == 2 and "65535" in done.stderr and "Traceback" not in done.stderr


@needs_chromium
def test_live_page_in_a_browser(tmp_path):
    with Browser() as browser, LivePage(title="<b>cyclic</b>") as page:
        for step in range(30):
            page.add(estimate(step, missing=(step % 4,)), loss=2.0 / (1 + step))
        browser.open(page.url)
        browser.until("document.getElementById('step').textContent === '29'")
        assert browser.value("document.getElementById('title').textContent") == "<b>cyclic</b>"
        assert browser.value("document.querySelectorAll('#cards li').length") == 4
        page.add(estimate(30, missing=(), lost=(2,)), loss=0.05)
        browser.until("document.getElementById('step').textContent === '30'")
        assert browser.value("document.getElementById('loss').textContent") == "0.05"
        assert browser.value("document.querySelectorAll('#cards li')[2].className") == "lost"
        assert "worker 2 is lost" in browser.value("document.querySelector('#log li').textContent")
        assert browser.value("document.getElementById('exact').textContent") == "100 %"
        assert browser.value("document.getElementById('wall').textContent") == "0.5 s"
        assert browser.value("document.getElementById('wait').textContent") == "0.25 s"
        assert browser.value("document.querySelector('#loss-line polyline').points.numberOfItems") == 31
        colours = {}
        for scheme in ("light", "dark"):
            browser.open(page.url, scheme)
            browser.until("document.getElementById('step').textContent === '30'")
            colours[scheme] = background(browser)
            assert browser.value(COLOURS_OF_THE_MAP) == 4, "nothing, used, late and lost differ"
            browser.picture(tmp_path / f"{scheme}.png")
        assert min(colours["light"]) > 230 and max(colours["dark"]) < 50
        own = page.url
        page.close()
        browser.until("document.getElementById('status').textContent === 'the run has ended'")
        assert browser.complaints == []
        assert browser.requests and all(url.startswith((own, "data:")) for url in browser.requests)
