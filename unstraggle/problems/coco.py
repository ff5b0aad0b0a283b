"""Object detection data in COCO's format: images in a folder, and a JSON file with their boxes and categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import parsed_json
from ..errors import Invalid

LEAST = 1.0
"""Boxes that are not at least so wide and high, in pixels, are left out."""


@dataclass(frozen=True, eq=False)
class Coco:
    """Images with their boxes (m, 4) as left, top, right, bottom in pixels, and categories (m,) as the file numbers them.

    Crowds, empty boxes and images without any box are left out, as detectors are trained.
    """

    folder: Path
    files: tuple[str, ...]
    boxes: tuple[NDArray[np.float32], ...]
    categories: tuple[NDArray[np.int64], ...]
    names: dict[int, str]

    @classmethod
    def read(cls, annotations: str | Path, folder: str | Path, limit: int | None = None) -> Coco:
        """The images of an annotation file such as instances_train2017.json, or the first `limit` of them."""
        path = Path(annotations)
        table = _parsed(path)
        kept = [one for one in table["annotations"] if not one.get("iscrowd", 0) and min(one["bbox"][2:]) >= LEAST]
        of_image: dict[int, list[Any]] = {}
        for one in kept:
            of_image.setdefault(one["image_id"], []).append(one)
        images = [image for image in table["images"] if image["id"] in of_image][:limit]
        if not images:
            raise Invalid(f"{path} has no image with a box of at least {LEAST:g} pixel. Give another annotation file.")
        found = [of_image[image["id"]] for image in images]
        return cls(
            Path(folder),
            tuple(image["file_name"] for image in images),
            tuple(_corners([one["bbox"] for one in boxes]) for boxes in found),
            tuple(np.array([one["category_id"] for one in boxes], dtype=np.int64) for boxes in found),
            {category["id"]: category["name"] for category in table.get("categories", [])},
        )

    def __len__(self) -> int:
        return len(self.files)

    def image(self, number: int) -> NDArray[np.float32]:
        """(3, height, width) of one image, 0 to 1."""
        try:
            from PIL import Image
        except ModuleNotFoundError as error:
            raise Invalid("Reading images needs Pillow, which is not installed. Run: pip install pillow") from error
        with Image.open(self.folder / self.files[number]) as file:
            pixels = np.asarray(file.convert("RGB"), dtype=np.float32)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1) / 255)


def _parsed(path: Path) -> dict[str, Any]:
    """The file's tables, checked as far as they are used."""
    try:
        table = parsed_json(path.read_text())
        images = {image["id"] for image in table["images"]}
        sound = all(one["image_id"] in images and len(one["bbox"]) == 4 for one in table["annotations"])
        [one["category_id"] for one in table["annotations"]], [image["file_name"] for image in table["images"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(f"{path} is not an annotation file in COCO's format: {error!r}.") from error
    if not sound:
        raise Invalid(f"{path}: every annotation needs a bbox of 4 numbers and the id of one of its images.")
    return table  # type: ignore[no-any-return]


def _corners(boxes: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    """left, top, width, height to left, top, right, bottom."""
    values = np.array(boxes, dtype=np.float32)
    values[:, 2:] += values[:, :2]
    return values
