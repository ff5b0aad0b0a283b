"""Reading for one GPU, where samples are decoded and augmented: python -m benchmarks.reading_gpu [RESULT.json].

ResNet-50, 64 pictures a step, bfloat16 autocast, SGD, the master's model on the device. A picture is a JPEG of 160 x 160
pixels, decoded by Pillow, cropped and mirrored at random, by processes of one thread each. ms: median of 60 steps, after 12
that are not counted. of_ready: over the same with pictures that are ready, as tensors in memory. Ways follow one another, not
by turns, for what reads ahead would go on reading in the turns of others.
"""

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from unstraggle.torch import Coded

from .common import RESULTS, of_device
from .way_models import PICTURES

STEPS, SKIPPED, PROCESSES = 60, 12, 4
FILES, PIXELS, CROP, CLASSES = 256, 160, 128, 1000
LENGTH = 64 * (STEPS + SKIPPED)


def jpeg(generator: np.random.Generator) -> bytes:
    """A picture with something in it: noise that is smooth."""
    small = Image.fromarray(generator.integers(0, 256, (20, 20, 3), dtype=np.uint8))
    file = io.BytesIO()
    small.resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


class Pictures(Dataset[Any]):
    """Pictures that are decoded, cropped and mirrored whenever they are asked for."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.files = [jpeg(generator) for _ in range(FILES)]

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(np.array(Image.open(io.BytesIO(self.files[row % len(self.files)]))))
        top, left = torch.randint(0, PIXELS - CROP + 1, (2,)).tolist()
        part = image[top : top + CROP, left : left + CROP].permute(2, 0, 1).float().div_(255)
        return part.flip(2) if torch.rand(()) < 0.5 else part, row % CLASSES


def ready(pictures: Pictures) -> TensorDataset:
    """Some of them, as tensors."""
    found = [pictures[row] for row in range(FILES)]
    return TensorDataset(torch.stack([image for image, _ in found]), torch.tensor([label for _, label in found]))


def median(step: Callable[[], Any], device: str) -> float:
    times = []
    for _ in range(STEPS + SKIPPED):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[SKIPPED:]))


def batches(dataset: Dataset[Any], processes: int, pinned: bool) -> Generator[Any]:
    """Without end; of tensors by one index for a batch, as nothing else is as fast."""
    if isinstance(dataset, TensorDataset):
        while True:
            for rows in torch.randperm(len(dataset)).split(PICTURES.batch):
                yield dataset[rows]
    while True:
        yield from DataLoader(dataset, PICTURES.batch, num_workers=processes, pin_memory=pinned, shuffle=True)


def one_process(build: Callable[[], nn.Module], dataset: Dataset[Any], processes: int, device: str) -> float:
    """Seconds of a step; processes: of the DataLoader."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = batches(dataset, processes, device == "cuda")

    def step() -> None:
        inputs, targets = (one.to(device, non_blocking=True) for one in next(loader))
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    with contextlib.closing(loader):
        return median(step, device)


def coded(build: Callable[[], nn.Module], dataset: Dataset[Any], scheme: str, device: str, **how: Any) -> float:
    """Seconds of a step."""
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    options: dict[str, Any] = {"batch_size": PICTURES.batch, "device": device, "autocast": torch.bfloat16, **how}
    with Coded(model, nn.CrossEntropyLoss(), dataset, scheme=scheme, engine_options={"threads": 1}, **options) as run:

        def step() -> None:
            optimizer.zero_grad()
            run.backward()
            optimizer.step()

        return median(step, device)


def rows_of(build: Callable[[], nn.Module], device: str) -> Iterator[dict[str, Any]]:
    """One process, one worker and four: with pictures that are ready, read in turn with computing, and read by processes."""
    torch.set_num_threads(1)
    pictures = Pictures()
    here = ready(pictures)
    alone = {name: one_process(build, *what, device) for name, what in loaders(pictures, here).items()}
    yield from beside("one process", alone)
    for scheme, readers in (("uncoded(1)", PROCESSES), ("uncoded(4)", PROCESSES // 4)):
        ways: dict[str, tuple[Dataset[Any], int]] = {"ready": (here, 0), "in turn": (pictures, 0)}
        ways[f"readers={readers}"] = pictures, readers
        yield from beside(scheme, {name: coded(build, one, scheme, device, readers=n) for name, (one, n) in ways.items()})


def loaders(pictures: Pictures, here: TensorDataset) -> dict[str, tuple[Dataset[Any], int]]:
    return {"ready": (here, 0), "in turn": (pictures, 0), f"DataLoader(num_workers={PROCESSES})": (pictures, PROCESSES)}


def beside(code: str, seconds: dict[str, float]) -> Iterator[dict[str, Any]]:
    for way, value in seconds.items():
        yield {"code": code, "way": way, "ms": round(1e3 * value, 1), "of_ready": round(value / seconds["ready"], 3)}


def main(path: Path) -> None:
    about, rows = of_device("reading_gpu", __doc__), []
    for row in rows_of(PICTURES.build, "cuda"):
        rows.append(row)
        print(json.dumps(row), flush=True)
        path.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "reading_gpu.json")
