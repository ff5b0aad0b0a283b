"""COCO's format: boxes, crowds, empty images, and files that are something else."""

import json

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.problems.coco import Coco

Image = pytest.importorskip("PIL.Image")


def write(folder, **changes):
    """Three small pictures: two boxes, one box that is a crowd, and none."""
    for number in range(3):
        pixels = np.full((8, 6, 3), 50 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    table = {
        "images": [{"id": 10 + number, "file_name": f"{number}.png"} for number in range(3)],
        "annotations": [
            {"image_id": 10, "bbox": [1, 2, 3, 4], "category_id": 90, "iscrowd": 0},
            {"image_id": 10, "bbox": [0, 0, 2, 2], "category_id": 1},
            {"image_id": 10, "bbox": [0, 0, 0, 2], "category_id": 1},
            {"image_id": 11, "bbox": [0, 0, 2, 2], "category_id": 1, "iscrowd": 1},
            {"image_id": 12, "bbox": [2, 1, 3, 3], "category_id": 7},
        ],
        "categories": [{"id": 1, "name": "person"}, {"id": 90, "name": "toothbrush"}],
    }
    path = folder / "instances.json"
    path.write_text(json.dumps(table | changes))
    return path


def test_boxes_and_pictures(tmp_path):
    data = Coco.read(write(tmp_path), tmp_path)
    assert len(data) == 2 and data.files == ("0.png", "2.png")
    assert data.boxes[0].tolist() == [[1, 2, 4, 6], [0, 0, 2, 2]] and data.categories[0].tolist() == [90, 1]
    assert data.boxes[1].tolist() == [[2, 1, 5, 4]] and data.names[90] == "toothbrush"
    assert data.image(1).shape == (3, 8, 6) and data.image(1).dtype == np.float32
    assert np.allclose(data.image(1), 100 / 255)
    assert len(Coco.read(write(tmp_path), tmp_path, limit=1)) == 1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"annotations": []}, "no image with a box"),
        ({"annotations": [{"image_id": 99, "bbox": [0, 0, 2, 2], "category_id": 1}]}, "id of one of its images"),
        ({"annotations": [{"image_id": 10, "bbox": [0, 0, 2], "category_id": 1}]}, "bbox of 4"),
        ({"annotations": [{"image_id": 10, "bbox": [0, 0, 2, 2]}]}, "category_id"),
        ({"images": 3}, "not an annotation file"),
    ],
)
def test_other_files_are_refused(tmp_path, changes, words):
    with pytest.raises(Invalid, match=words):
        Coco.read(write(tmp_path, **changes), tmp_path)


def test_missing_or_broken_files_are_refused(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    for name in ("broken.json", "missing.json"):
        with pytest.raises(Invalid, match="not an annotation file"):
            Coco.read(tmp_path / name, tmp_path)
