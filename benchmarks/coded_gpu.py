"""Coded training with several worker processes on one CUDA device: parity with one process, and time to a step.

python -m benchmarks.coded_gpu [RESULT.json]
"""

import copy
import json
import statistics
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn

from unstraggle import engines
from unstraggle.app.comparison import stragglers
from unstraggle.torch import Coded

from .common import RESULTS, of_device

WORKERS, LENGTH, WIDTH, DEPTH, BATCH, STEPS = 4, 128, 384, 6, 256, 40
UNIT, FACTOR = 0.05, 10.0
SCHEMES = {
    "wait for all": "uncoded(4)",
    "repetition": "fractional_repetition(4, s=1)",
    "multi-message": "correlated_mmc(4, load=3, order=2)",
    "repetition, 8 bits": "quantize(fractional_repetition(4, s=1), bits=8, bucket=512)",
}


class Gpt(nn.Module):
    """A byte-level transformer with 10.9 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(256, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        block = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, DEPTH, enable_nested_tensor=False)
        self.say = nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=text.device)
        return self.say(self.blocks(self.letter(text) + self.place, mask=mask)).transpose(1, 2)


def data() -> tuple[Tensor, Tensor]:
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    rows = torch.tensor(list(text[: len(text) // (LENGTH + 1) * (LENGTH + 1)])).view(-1, LENGTH + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def train(scheme: str, slow: bool) -> tuple[Coded, list[float], list[float], float]:
    """Train; losses on a fixed sample, seconds per step, and megabytes that came in the last step."""
    torch.manual_seed(0)
    model, arrays = Gpt(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def engine(problem: Any) -> engines.Engine:
        local = engines.Local(problem)
        return engines.Chaos(local, latency=stragglers(WORKERS, [1], UNIT, FACTOR), rng=0) if slow else local

    losses, seconds, size = [], [], 0.0
    with Coded(model, nn.CrossEntropyLoss(), arrays, scheme=scheme, batch_size=BATCH, device="cuda", engine=engine) as run:
        for step in range(STEPS):
            began = time.perf_counter()
            optimizer.zero_grad()
            size = run.backward().bytes / 1e6
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seconds.append(time.perf_counter() - began)
            if step % 10 == 9:
                losses.append(shown_loss(model, arrays))
    return run, losses, seconds, size


@torch.no_grad()
def shown_loss(model: nn.Module, arrays: tuple[Tensor, Tensor]) -> float:
    there = copy.deepcopy(model).cuda()
    return float(nn.functional.cross_entropy(there(arrays[0][:512].cuda()), arrays[1][:512].cuda()))


def alone(run: Coded) -> nn.Module:
    """The same steps in one process on the same device."""
    torch.manual_seed(0)
    model, (inputs, targets) = Gpt().cuda(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        rows = [
            row for part in range(run.problem.k) for row in run.problem.data.rows[part][run.batches.rows(step, part)].tolist()
        ]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[rows].cuda()), targets[rows].cuda()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def difference(model: nn.Module, other: nn.Module) -> float:
    """Largest relative difference of a parameter tensor."""
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(float((a.detach().cpu() - b.detach().cpu()).norm() / b.detach().cpu().norm().clamp_min(1e-12)) for a, b in pairs)


def measured(name: str, scheme: str, reference: nn.Module | None) -> tuple[dict[str, Any], nn.Module]:
    """A row of the table, and the model that one process trains on the same batches."""
    run, losses, seconds, size = train(scheme, slow=False)
    _, _, delayed, _ = train(scheme, slow=True)
    reference = alone(run) if reference is None else reference
    row = {
        "scheme": name,
        "code": scheme,
        "parameters_differ_from_one_process": difference(run.model, reference),
        "loss_every_10_steps": losses,
        "ms_a_step": 1e3 * statistics.median(seconds[5:]),
        "ms_a_step_one_worker_slow": 1e3 * statistics.median(delayed[5:]),
        "megabytes_in_the_last_step": size,
    }
    return row, reference


def write(path: Path, rows: list[dict[str, Any]], reference: nn.Module) -> None:
    about = {
        **of_device("coded_gpu"),
        "parameters": sum(p.numel() for p in reference.parameters()),
        "workers": WORKERS,
        "steps": STEPS,
        "injected": f"every worker takes {UNIT} s for its share, worker 1 {FACTOR:g} times that, in ms_a_step_one_worker_slow",
        "loss_of_one_process": shown_loss(reference, data()),
    }
    path.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


def main(path: Path) -> None:
    """Every scheme; what is done is written."""
    torch.backends.cuda.matmul.allow_tf32 = False
    rows, reference = [], None
    for name, scheme in SCHEMES.items():
        print(name, flush=True)
        row, reference = measured(name, scheme, reference)
        rows.append(row)
        print(json.dumps(row), flush=True)
        write(path, rows, reference)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "coded_gpu.json")
