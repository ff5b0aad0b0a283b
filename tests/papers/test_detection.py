"""The detector of figure 4 of [C]: what it learns to say, what is read from it, its pictures, and COCO's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unstraggle import Invalid

from .. import commands

torch = pytest.importorskip("torch")
pytest.importorskip("mlxtend")
from unstraggle.papers.quantized_osgc import figure4, figures, scenes  # noqa: E402
from unstraggle.papers.quantized_osgc.detection import (  # noqa: E402
    Found,
    average_precision,
    detector,
    found_in,
    goals,
    losses,
    scores_of,
)
from unstraggle.papers.quantized_osgc.training import Panel, train  # noqa: E402

torch.set_num_threads(1)
BOXES = np.array([[2, 3, 15, 16], [17, 14, 31, 30]], dtype=np.float32)
LABELS = np.array([2, 0])


def says(boxes, labels, kinds=3, cells=4, sure=9.0):
    """What a perfect detector says of a picture."""
    goal = torch.from_numpy(goals(boxes, labels, cells))
    wanted = torch.where(goal[0] >= 0, goal[0], kinds).long()
    scores = sure * torch.nn.functional.one_hot(wanted, kinds + 1).permute(2, 0, 1)
    return torch.cat([scores, goal[1:]])


def test_what_is_said_is_read_back():
    found = found_in(says(BOXES, LABELS))
    order = np.argsort(found.labels)[::-1]
    assert found.boxes[order] == pytest.approx(BOXES, abs=1e-4) and found.labels[order].tolist() == [2, 0]
    assert scores_of(found, BOXES, LABELS) == pytest.approx([0.9996, 0.9996], abs=1e-4)
    assert scores_of(found, BOXES, np.array([1, 0]))[0] == 0, "another label is not found"
    assert scores_of(Found(BOXES[:0], LABELS[:0], np.zeros(0)), BOXES, LABELS) == [0, 0]


def test_the_loss_is_least_where_everything_is_right():
    goal = torch.from_numpy(goals(BOXES, LABELS, 4))[None]
    right, moved = says(BOXES, LABELS)[None], says(BOXES + 1, LABELS)[None]
    assert losses(right, goal).item() < 0.01 < losses(moved, goal).item() < losses(torch.zeros_like(right), goal).item()
    assert losses(torch.cat([right, moved]), goal.expand(2, -1, -1, -1)).shape == (2,)


def test_the_smaller_of_two_in_a_cell_counts():
    both = np.array([[0, 0, 8, 8], [2, 2, 6, 6], [0, 0, 7, 7]], dtype=np.float32)
    assert goals(both, np.array([0, 1, 2]), 1)[0, 0, 0] == 1


def test_one_object_is_found_once():
    output = says(BOXES, LABELS)
    output[:, 1, 1] = output[:, 0, 1]  # the next cell says the same
    output[-4:-2, 1, 1] -= 1
    assert len(found_in(output).boxes) <= 3
    same = says(np.array([[4, 4, 12, 12]], dtype=np.float32), np.array([1]))
    same[:, 0, 0], same[-4, 0, 0], same[-3, 0, 0] = same[:, 1, 1], 1.0, 1.0
    assert found_in(same).boxes.tolist() == [[4, 4, 12, 12]]


def test_average_precision_by_hand():
    """Two objects; found in order of scores: right, wrong, right. Precision 1 up to half, 2 / 3 up to all."""
    boxes = np.array([[0, 0, 4, 4], [10, 10, 14, 14], [20, 20, 24, 24]], dtype=np.float32)
    found = Found(boxes[[0, 2, 1]], np.zeros(3, dtype=np.int64), np.array([0.9, 0.8, 0.7], dtype=np.float32))
    truth = [(boxes[:2], np.zeros(2, dtype=np.int64))]
    assert average_precision([found], truth) == pytest.approx((1 + 2 / 3) / 2)
    twice = Found(boxes[[0, 0]], np.zeros(2, dtype=np.int64), np.array([0.9, 0.8], dtype=np.float32))
    assert average_precision([twice], truth) == pytest.approx(0.5), "the second is of an object that is found already"
    assert average_precision([Found(boxes[:0], np.zeros(0, dtype=np.int64), np.zeros(0))], truth) == 0


def test_scenes_hold_the_objects_that_they_name():
    data, others = scenes.scenes(20, held_out=False), scenes.scenes(20, held_out=True)
    assert data.images.shape == (20, 1, scenes.SIDE, scenes.SIDE) and not torch.equal(data.images, others.images)
    for image, boxes, labels in zip(data.images, data.boxes, data.labels, strict=True):
        assert 1 <= len(boxes) == len(labels) <= 2 and labels.max() < scenes.DIGITS
        for left, top, right, bottom in boxes.astype(int):
            assert 0 <= left < right <= scenes.SIDE and image[0, top:bottom, left:right].std() > image.std() / 2
    assert (data.goals()[:, 0] >= 0).sum() <= sum(map(len, data.labels))


def test_a_detector_learns_in_coded_steps():
    panel = Panel(problem="scenes", n=10, each=6, optimizer="adam", rate=0.01, steps=12, every=6)
    run = train(panel, "proposed", panel.rate, 0)
    assert run.loss[-1] < 0.9 * run.loss[0] and run.params is not None and 0 <= run.accuracy < 1
    lost = train(replace(panel, steps=2, every=1), "proposed", 1e6, 0)
    assert lost.params is None and figure4._seen(panel, lost) == []


def write_coco(folder, pictures=12):
    """COCO's folders with small pictures: a bright square each, of category 7, and every third has one of category 3, too."""
    image = pytest.importorskip("PIL.Image")
    for kind in ("train2017", "val2017"):
        (folder / kind).mkdir(parents=True)
        (folder / "annotations").mkdir(exist_ok=True)
        table = {"images": [], "annotations": [], "categories": [{"id": 3, "name": "car"}, {"id": 7, "name": "train"}]}
        for number in range(pictures):
            pixels = np.zeros((40, 60, 3), dtype=np.uint8)
            pixels[5:25, 10 : 10 + 2 * number + 4] = 255
            image.fromarray(pixels).save(folder / kind / f"{number}.png")
            table["images"].append({"id": number, "file_name": f"{number}.png"})
            boxes = [(7, [10, 5, 2 * number + 4, 20])] + [(3, [0, 30, 9, 9])] * (number % 3 == 0)
            table["annotations"] += [{"image_id": number, "bbox": box, "category_id": kind} for kind, box in boxes]
        (folder / "annotations" / f"instances_{kind}.json").write_text(json.dumps(table))
    return folder


def test_coco_is_read_scaled_and_labelled(tmp_path):
    data = scenes.pictures(f"coco:{write_coco(tmp_path)}", held_out=False)
    assert data.images.shape == (12, 3, 96, 96) and data.names == ("car", "train")
    assert data.labels[0].tolist() == [1, 0] and data.labels[1].tolist() == [1]
    assert data.boxes[1][0] == pytest.approx([16, 12, 25.6, 60], abs=1e-3)
    few = scenes.coco(tmp_path, held_out=True, frequent=1)
    assert few.names == ("train",) and all((labels == 0).all() for labels in few.labels)
    problem = scenes.detection(f"coco:{tmp_path}", 4, 0)
    assert problem.k == 4 and problem.dim == sum(p.numel() for p in detector(3, 2).parameters())
    with pytest.raises(Invalid, match="too few for 50"):
        scenes.detection(f"coco:{tmp_path}", 50, 0)


def test_labels_of_boxes_do_not_cover_each_other():
    """Of those on the page: each is in the picture, and none lies on another."""
    shown = json.loads((Path(__file__).parents[2] / "papers/quantized_osgc/cagc-fig4.json").read_text())["picture"]
    for found in (some for kind in shown["found"].values() for some in kind.values()):
        taken = []
        for one in found:
            taken.append(figure4._place(one["box"], taken, 1.0))
        assert all(0 <= x <= 22.5 and 3 <= y <= 31 for x, y in taken)
        assert not [1 for i, (x, y) in enumerate(taken) for a, b in taken[:i] if abs(x - a) < 9.5 and abs(y - b) < 3.2]


@pytest.mark.parametrize("data", ["scenes", "coco"])
def test_the_figure_is_written(data, tmp_path, monkeypatch):
    """With one short study for all schemes; from a folder in COCO's format as the command reads it."""
    folder = write_coco(tmp_path) if data == "coco" else None
    problem = f"coco:{folder}" if folder else "scenes"
    panel = Panel(problem=problem, n=10, each=4, optimizer="adam", rate=0.01, steps=20, every=10)
    run = train(replace(panel, steps=4, every=2), "SGD", 0.01, 0)
    one = {"shared": [run, run], "tuned": [run, run], "rate": 0.02, "tried": {0.02: 1.0}, "seconds": 1.0}
    monkeypatch.setattr(figures, "studies", lambda lines, *_: {(panel, label): one for _, panel, label in lines})
    out = tmp_path / "out"
    command = ["reproduce", "cagc-fig4", "--quick", "-o", str(out), *(("--coco", str(folder)) if folder else ())]
    table = commands.run(*command).stdout
    assert all(label in table for label in figure4.LABELS) and max(map(len, table.splitlines()[:-1])) <= 80
    assert (out / "cagc-fig4.png").stat().st_size > 10_000
    found = json.loads((out / "cagc-fig4.json").read_text())
    assert len(found["rows"]) == 16 and set(found["picture"]["found"]["tuned"]) == set(figure4.LABELS)
    names = {one["name"] for one in found["picture"]["objects"]}
    assert names == {"car", "train"} if folder else names
    assert np.array(found["picture"]["pixels"]).shape == ((96, 96, 3) if folder else (32, 32, 1))
