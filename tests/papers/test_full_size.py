"""The program that trains models of full size on a GPU, with tiny models on the CPU."""

import json
import time

import numpy as np
import pytest
import torch

from benchmarks import training_gpu
from benchmarks.full_size import runs, tasks
from benchmarks.full_size.replica import Replica
from tests.papers.test_detection import write_coco
from unstraggle import Invalid
from unstraggle.papers.quantized_osgc.detection import detector
from unstraggle.papers.quantized_osgc.schemes import scheme
from unstraggle.quantizers import QSGD


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def replica():
    return Replica(tasks.small(tasks.text), slots=2)


def test_a_message_is_the_weighted_sum_of_partial_gradients(replica):
    batch = replica.task.batch(0, 3)
    parts = [replica.gradient(batch, [part], [1.0]).clone() for part in (1, 4, 5)]
    found = replica.gradient(batch, [1, 4, 5], [0.5, -2.0, 3.0])  # three parts in two slots
    assert torch.allclose(found, 0.5 * parts[0] - 2 * parts[1] + 3 * parts[2], atol=1e-6)


def test_a_partial_gradient_is_that_of_the_partitions_mean_loss(replica):
    (x, y), model = replica.task.batch(0, 3), replica.model
    loss = replica.task.losses(model, x[2], y[2]).mean()
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(replica.gradient((x, y), [2], [1.0]), expected, atol=1e-6)


def test_the_estimate_of_all_schemes_is_what_their_code_decodes(replica):
    """Without stragglers and with 16 bits, an unbiased decoder's weights leave a known multiple of every partial gradient."""
    batch, everyone = replica.task.batch(0, 1), np.ones(6, dtype=bool)
    whole, _ = runs.estimate(replica, batch, None, everyone, 0)
    code = scheme("IS-SGD", runs.cluster(replica, "IS-SGD", 16)).code
    found, bits = runs.estimate(replica, batch, code, everyone, 0)
    assert float((found - whole).norm() / whole.norm()) < 0.01
    assert bits == 6 * (16 * replica.dim + 32)


def test_the_variance_on_a_device_is_that_of_the_quantiser(replica):
    x = replica.gradient(replica.task.batch(0, 0), [0], [1.0])
    for bits in (2, 5, 9):
        assert runs.variance(x, bits) == pytest.approx(QSGD(bits).variance(x.numpy(), relative=True), rel=1e-3)


def test_every_scheme_of_the_table_can_be_built(replica):
    for label in training_gpu.SCHEMES:
        code = scheme(label, runs.cluster(replica, label, 7)).code
        assert (code is None) == (label == "SGD")


def test_the_shifted_pictures_hold_their_patterns():
    x, y = tasks.small(tasks.pictures).batch(0, 0)
    again, _ = tasks.small(tasks.pictures).batch(0, 0)
    other, _ = tasks.small(tasks.pictures).batch(0, 1)
    assert x.shape == (6, 2, 3, 16, 16) and y.shape == (6, 2)
    assert torch.equal(x, again) and not torch.equal(x, other)


def test_a_detector_on_coco_has_the_gradient_of_its_loss(tmp_path):
    """With the small detector of figure 4 in place of MobileNetV3-Large, which needs torchvision."""
    folder = write_coco(tmp_path)
    task = tasks.detection(folder, lambda labels: detector(3, labels), size=2, side=32, parts=4)
    replica = Replica(task, slots=2)
    (x, y), again = task.batch(0, 3), task.batch(0, 3)
    assert x.shape == (4, 2, 3, 32, 32) and y.shape == (4, 2, 5, 4, 4) and torch.equal(x, again[0])
    loss = task.losses(replica.model, x[2], y[2]).mean()
    expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(replica.model.parameters()))])
    assert torch.allclose(replica.gradient((x, y), [2], [1.0]), expected, atol=1e-6)
    row = runs.train(replica, runs.Run(task.name, "proposed", 0.05, 0, 6), 6)
    assert row["final"] is not None and row["losses"][0][1] > row["losses"][-1][1]
    with pytest.raises(Invalid, match="too few for 50"):
        tasks.detection(folder, lambda labels: detector(3, labels), side=32)


def test_the_rate_of_least_loss_is_found_in_both_directions():
    asked = []

    def loss(best):
        return lambda rate: asked.append(rate) or abs(np.log(rate / best))

    assert training_gpu.best_rate(loss(2.8), 0.1) == 2.7
    assert training_gpu.best_rate(loss(0.012), 0.1) == 0.01111
    assert training_gpu.best_rate(loss(0.1), 0.1) == 0.1
    asked.clear()
    assert training_gpu.best_rate(lambda rate: asked.append(rate) or np.inf, 0.1) is not None
    assert len(asked) <= training_gpu.MOST_TRIED
    assert training_gpu.best_rate(lambda rate: None, 0.1) is None


def test_a_study_that_is_stopped_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(training_gpu, "SCHEMES", {"OSGC": 0.3, "SGD": 0.3})
    monkeypatch.setattr(training_gpu, "MOST_TRIED", 2)
    small, path = Replica(tasks.small(tasks.pictures)), tmp_path / "found.json"
    done = []
    real = runs.train
    monkeypatch.setattr(training_gpu, "train", lambda replica, run, each: done.append(run) or real(replica, run, each))

    class Stopped(training_gpu.Book):
        def row(self, replica, run):
            return super().row(replica, run) if len(self.rows) < 5 else None

    forever = time.perf_counter() + 1e6
    assert not training_gpu.study(small, Stopped(path, forever, 4), 8, 2)
    assert len(done) == 5 == len(json.loads(path.read_text())["runs"])
    assert training_gpu.study(small, training_gpu.Book(path, forever, 4), 8, 2)
    assert len(done) == len(set(done)) == 2 * (3 * 2 + 2)

    found = json.loads(path.read_text())
    lines = {line["scheme"]: line for line in found["summary"]}
    finals = [row["final"] for row in found["runs"] if row["scheme"] == "SGD" and row["seed"] < 1000]
    assert lines["SGD"]["loss"] == pytest.approx(np.mean(finals), abs=1e-4) and lines["SGD"]["seeds"] == 2
    assert all(line["chosen"] for line in lines.values()) and lines["OSGC"]["gap"] == 0 and lines["SGD"]["gap_half"] > 0
    merged = training_gpu.Book(tmp_path / "other.json", forever, also=[path])
    assert len(merged.rows) == len(found["runs"])


def test_a_diverged_run_has_no_final_loss_and_is_counted(replica):
    row = runs.train(replica, runs.Run(replica.task.name, "OSGC", 1e4, 0, 10), 4)
    assert row["final"] is None
    line = training_gpu.summary([row])[0]
    assert (line["diverged"], line["loss"], line["gap"]) == (1, None, None)


def test_a_summary_keeps_rates_apart_and_says_which_is_chosen():
    def row(scheme, rate, seed, final):
        return {"task": "t", "scheme": scheme, "rate": rate, "seed": seed, "final": final, "gigabits_a_step": 1.0}

    tuning = [row("OSGC", rate, seed, final) for rate, final in ((0.1, 1.0), (0.3, 0.98)) for seed in training_gpu.TUNING]
    finals = [row("OSGC", rate, seed, seed + rate) for rate in (0.1, 0.3) for seed in range(3)]
    low, high = training_gpu.summary([*tuning, *finals])
    assert (low["rate"], low["chosen"], high["chosen"]) == (0.1, True, False)  # nearly as good, and the lower of both
    assert (low["loss"], high["loss"], high["gap"]) == pytest.approx((1.1, 1.3, 0.2))


def test_no_run_is_begun_that_would_end_too_late(replica, tmp_path):
    book = training_gpu.Book(tmp_path / "found.json", time.perf_counter() - 1)
    assert book.row(replica, runs.Run(replica.task.name, "SGD", 0.1, 0, 3)) is None
