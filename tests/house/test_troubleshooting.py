"""The messages on the page about troubleshooting are the program's: they stand in its source, and most are raised here."""

import ast
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import unstraggle as us
from unstraggle import codes, engines, problems, trace
from unstraggle.app.runs import read_run
from unstraggle.engines.mpi_launch import wire
from unstraggle.engines.ray_connection import Connection
from unstraggle.latency import Heterogeneous, Pareto, ShiftedExponential
from unstraggle.quantizers import QSGD, read
from unstraggle.scheme.noise import require_digits
from unstraggle.torch.launch import require_one_master

from ..folding import folded
from ..pages import ROOT, fences

PAGE = "docs/troubleshooting.md"
FIXED = 20
"""Least characters of a message that must stand in the source as they are."""

torch = pytest.importorskip("torch")
nn = torch.nn


# What is quoted


def quotes():
    """(line, heading, message) of every message on the page."""
    text = (ROOT / PAGE).read_text()
    lines = text.splitlines()
    found = []
    for fence in fences(PAGE):
        if fence.language == "text":
            heading = next(line for line in reversed(lines[: fence.line]) if line.startswith("### "))
            found.append((fence.line + 1, heading.removeprefix("### "), one_line(fence.text)))
    return found


def one_line(text):
    return " ".join(text.split())


# What stands in the source


@cache
def patterns():
    """A regular expression for each text in the package: what is filled in may be anything."""
    found = set()
    for path in sorted(Path(us.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in inside):
                pieces = list(pieces_of(node))
                if sum(len(piece) for piece in pieces if piece) >= FIXED:
                    found.add("".join(".*" if piece is None else re.escape(piece) for piece in pieces))
    return [re.compile(pattern, re.DOTALL) for pattern in sorted(found)]


def pieces_of(node):
    """The fixed pieces of a text, as they look on one line, and None where something is filled in."""
    for part in node.values if isinstance(node, ast.JoinedStr) else [node]:
        if not isinstance(part, ast.Constant):
            yield None
        elif isinstance(part.value, str):
            for number, piece in enumerate(re.split(r"%[-.\w]*[sdgf]", part.value)):
                if number:
                    yield None
                yield re.sub(r"\s+", " ", piece)


def test_messages_stand_in_the_source():
    strange = [
        f"{PAGE}:{line}: {heading}: {message}"
        for line, heading, message in quotes()
        if heading not in COMPOSED and not any(pattern.fullmatch(message) for pattern in patterns())
    ]
    assert not strange


def test_changed_messages_are_noticed():
    heading, message = next((h, m) for _, h, m in quotes() if "were not ready within" in m)
    changed = message.replace("were not ready within", "were not ready in")
    assert heading and not any(pattern.fullmatch(changed) for pattern in patterns())


def test_the_page_has_many_messages():
    assert len(quotes()) >= 40
    assert COMPOSED <= set(RAISED) <= {heading for _, heading, _ in quotes()}


# What can be raised here

CODE = codes.cyclic_repetition(4, s=1)
DATA = torch.ones(40, 3), torch.ones(40, 1)
CLOCK = ShiftedExponential(rate=1.0)


def coded(loss_fn=None, data=DATA, model=None, **options):
    """A run on a virtual clock; options as for Coded."""
    given = {"scheme": "fractional_repetition(4, s=1)", "engine": "virtual", "latency": CLOCK} | options
    return us.torch.Coded(model or nn.Linear(3, 1), loss_fn or nn.MSELoss(), data, **given)


def after_closing():
    with coded() as run:
        pass
    run.backward()


def master(code, **options):
    problem = problems.LeastSquares.split(np.eye(4), np.ones(4), parts=4)
    return us.Master(code, engines.Virtual(problem, CLOCK, rng=0), **options)


def weighted(outputs, targets):
    return ((outputs - targets) ** 2).sum() / outputs.abs().sum()


def not_a_number(outputs, targets):
    return (outputs - targets).mean() * float("nan")


class Counting(nn.Module):
    """A forward pass with a memory."""

    def __init__(self):
        super().__init__()
        self.weight, self.calls = nn.Parameter(torch.ones(1)), 0

    def forward(self, x):
        self.calls += self.training
        return x.sum(dim=1, keepdim=True) * self.weight * (1 + self.calls)


class Elsewhere:
    """A dataset whose files are on another machine."""

    def __len__(self):
        return 40

    def __getitem__(self, place):
        raise FileNotFoundError("data/0.npy")


def freezing():
    run = coded()
    run.model.bias.requires_grad_(False)
    run.backward()


def damaged():
    payload = QSGD(bits=4, bucket=512).encode(np.ones(8, np.float32), seed=0).copy()
    payload[-1] ^= 1
    read(payload)


def other_workers():
    trace.append("trace.jsonl", trace.from_seconds(np.ones((2, 4))))
    trace.append("trace.jsonl", trace.from_seconds(np.ones((2, 8))))


def not_a_trace():
    Path("times.csv").write_text("worker,seconds\n")
    trace.read("times.csv")


def another_seed():
    coded(seed=1).load_state_dict(coded().state_dict())


def drifting():
    seconds = np.random.default_rng(0).lognormal(0, 0.1, (40, 4))
    seconds[20:] *= 1.5
    raise us.Invalid(us.plan.auto(seconds).verdict)


def cut_short():
    seconds = np.ones((40, 8))
    seconds[:, 1] = np.inf
    raise us.Invalid(us.diagnose(seconds).verdict)


def empty_folder():
    Path("out").mkdir()
    read_run("out")


def random_cyclic():
    return codes.quantize(codes.cyclic_repetition(12, s=3, construction="random"), bits=4, bucket=512)


def twice_at_once():
    """As another thread would see it."""
    busy = master(CODE)
    with busy._busy:
        busy.gradient(np.zeros(4))


def norm_and_bits():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    return coded(model=model, scheme="quantize(fractional_repetition(4, s=1), bits=8, bucket=512)")


NEVER = np.array([1.0, np.inf, np.inf, 2.0])
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in grad\nZeroDivisionError: division by zero'

RAISED = {
    "The problem has another number of partitions": lambda: us.Master(
        codes.uncoded(5), engines.Virtual(problems.LeastSquares.split(np.eye(4), np.ones(4), parts=4), CLOCK)
    ),
    "The code is for another number of workers": lambda: coded(workers=8),
    "The number of workers is missing": lambda: coded(scheme="none"),
    "Fewer samples than partitions": lambda: coded(data=(torch.ones(3, 3), torch.ones(3, 1))),
    "The batch is larger than the data": lambda: coded(batch_size=64),
    "A name is not known": lambda: us.parse_code("cyclic_repitition(8, s=2)"),
    "s + 1 must divide n": lambda: codes.fractional_repetition(40, s=8),
    "Parameters of another shape": lambda: master(CODE).gradient(np.zeros(5)),
    "Too few messages: a shortfall": lambda: master(CODE, on_shortfall="raise").gradient(np.zeros(4), delays=NEVER),
    "A worker failed": lambda: (_ for _ in ()).throw(engines.WorkerFailed(1, TRACEBACK)),
    "The loss is NaN or infinite": lambda: coded(not_a_number, check=False).backward(),
    "Digits are lost": lambda: require_digits(codes.reed_solomon(40, s=20), np.dtype(np.float32)),
    "An approximate code has no stop rule": lambda: master(codes.ignore_stragglers(4, p=0.2)),
    "A master is used by two threads": twice_at_once,
    "The parameters are NaN": lambda: master(CODE).gradient(np.full(4, np.nan)),
    "The forward pass is not the same twice": lambda: coded(model=Counting()),
    "The loss is not a sum or a mean": lambda: coded(weighted, data=(torch.randn(40, 3), torch.ones(40, 1))),
    "The script was started several times": lambda: require_one_master("local", {"WORLD_SIZE": "4", "RANK": "0"}),
    "The loss is not one number": lambda: coded(nn.MSELoss(reduction="none")),
    "Samples cannot be read": lambda: coded(data=Elsewhere()),
    "A run was closed": after_closing,
    "The forward pass fails": lambda: coded(data=(torch.ones(40, 4), torch.ones(40, 1))),
    "A dataset without length or items": lambda: coded(data=iter([1, 2])),
    "Parameters were frozen": freezing,
    "Resuming another run": another_seed,
    "The virtual engine has no clock": lambda: coded(latency=None),
    "Batch normalisation with quantised messages": norm_and_bits,
    "More noise than gradient": random_cyclic,
    "A payload was changed": damaged,
    "A payload was cut off": lambda: read(np.zeros(10, np.uint8)),
    "NaN in a message": lambda: QSGD(bits=4, bucket=512).encode(np.array([1.0, np.nan], np.float32), seed=0),
    "The trace is too short": lambda: us.plan.auto(np.ones((5, 4))),
    "Too few times to fit": lambda: us.latency.fit(np.ones(5)),
    "A file is not a trace": not_a_trace,
    "A trace of other workers": other_workers,
    "Rounds that did not wait for all": cut_short,
    "The trace drifts": drifting,
    "The mean time is infinite": lambda: us.plan.redundancy(Pareto(shape=0.1), n=4),
    "Latency for another number of workers": lambda: us.simulate(codes.uncoded(8), Heterogeneous([CLOCK] * 6), rounds=10),
    "A run directory is empty": empty_folder,
    "The script was started without mpiexec": lambda: wire(8),
    "Ray through a client address": lambda: Connection.join("ray://head:10001", 4, 1),
    "Chaos without processes": lambda: engines.Chaos(master(CODE).engine, kill=0.1),
}
"""How to meet a message: by heading."""

COMPOSED = {"A name is not known", "The trace drifts", "Rounds that did not wait for all"}
"""Messages that are put together from several texts; they are all raised."""


def words(error):
    """What an error may say; of one that the problem raised on a worker, also what that one says."""
    said = [str(error)]
    if isinstance(error, us.WorkerFailed):
        said.append(error.details.strip().splitlines()[-1].partition(": ")[2])
    return {one_line(each) for each in said}


def test_messages_are_what_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py"])
    torch.set_num_threads(1)
    with folded() as case:
        for number, (heading, meet) in enumerate(RAISED.items()):
            (tmp_path / str(number)).mkdir()
            monkeypatch.chdir(tmp_path / str(number))
            torch.manual_seed(0)
            with case(f"{PAGE}: {heading}"):
                with pytest.raises(us.UnstraggleError) as caught:
                    meet()
                assert words(caught.value) & {message for _, known, message in quotes() if known == heading}
