"""What people do for speed and memory gives the steps of one process: orders of memory, fused optimisers, checkpoints,
compilation, lower precision."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..torch_models import coded

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
OPTIMIZERS = {
    "fused SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
    "fused AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
    "foreach AdamW": lambda params: torch.optim.AdamW(params, lr=0.01, foreach=True),
}
BLOCKS = "blocks([1, 1], uncoded(4), fractional_repetition(4, s=1))"


pytestmark = pytest.mark.usefixtures("one_thread")


class Pictures(nn.Module):
    """Convolutions, one of them of single pixels, whose strides do not tell its order; checkpointed if wanted."""

    def __init__(self, kept=True):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.dots = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.last, self.kept = nn.Linear(4 * 6 * 6, 3), kept

    def middle(self, x):
        return self.dots(self.first(x).relu()).tanh()

    def forward(self, x):
        x = self.middle(x) if self.kept else checkpoint(self.middle, x, use_reentrant=False)
        return self.last(x.flatten(1))


def pictures(samples=24):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, 8, 8, generator=generator), torch.randint(0, 3, (samples,), generator=generator)


def plain(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def both(model, optimizer=plain, twin=None, steps=3, device="cpu", meanwhile=lambda model, step: None, **options):
    """Largest difference of a parameter after some steps from those of one process on the same batches."""
    model, data = model.to(device), pictures()
    twin = copy.deepcopy(model) if twin is None else twin.to(device)
    mine, theirs = optimizer(model.parameters()), optimizer(twin.parameters())
    with coded(model, nn.CrossEntropyLoss(), data, batch_size=8, device=device, **options) as run:
        for step in range(steps):
            rows = torch.from_numpy(run.batches.batch_of(step))
            mine.zero_grad()
            assert run.backward().exact
            mine.step()
            theirs.zero_grad()
            nn.functional.cross_entropy(twin(data[0][rows].to(device)), data[1][rows].to(device)).backward()
            theirs.step()
            meanwhile(model, step)
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=["contiguous", "channels_last"])
def test_optimisers_that_go_through_memory(name, order, device):
    model = Pictures().to(memory_format=order)
    assert both(model, OPTIMIZERS[name], device=device, engine="local" if device == "cuda" else "virtual") < 1e-5
    assert all(p.grad.stride() == p.stride() for p in model.parameters())


@pytest.mark.parametrize("scheme", [BLOCKS, "uncoded(2)"])
def test_workers_compute_in_the_order_of_the_model(scheme):
    model = Pictures().to(memory_format=torch.channels_last)
    with coded(model, nn.CrossEntropyLoss(), pictures(), scheme=scheme) as run:
        run.backward()
        theirs = {name: p.stride() for name, p in run.problem.model.named_parameters()}
    assert theirs == {name: p.stride() for name, p in model.named_parameters()}
    assert both(Pictures().to(memory_format=torch.channels_last), OPTIMIZERS["fused SGD"], scheme=scheme) < 1e-5


def test_the_order_may_change_meanwhile():
    def turn(model, step):
        model.to(memory_format=torch.channels_last if step == 0 else torch.contiguous_format)

    def separate(params):
        return torch.optim.SGD(params, lr=0.1, fused=True)

    assert both(Pictures(), separate, meanwhile=turn) < 1e-5


@pytest.mark.parametrize("device", DEVICES)
def test_checkpoints_on_the_workers(device):
    assert both(Pictures(kept=False), twin=Pictures(), device=device, engine="local" if device == "cuda" else "virtual") < 1e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32")  # of the compiler's own
@pytest.mark.parametrize("device", DEVICES)
def test_a_compiled_model(device):
    """By the compiler's front end; what its back ends make of it is torch's business, but for a device."""
    backend = "inductor" if device == "cuda" else "eager"
    engine = "local" if device == "cuda" else "virtual"
    compiled = torch.compile(Pictures(), backend=backend)
    assert both(compiled, twin=Pictures(), device=device, engine=engine, scheme="uncoded(2)") < 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_lower_precision_is_that_of_one_process(device):
    """autocast: every partition in one pass, as one process has it."""
    model = Pictures().to(device)
    twin, data = copy.deepcopy(model), pictures()
    engine = "local" if device == "cuda" else "virtual"
    options = {"engine": engine, "device": device, "autocast": torch.bfloat16, "scheme": "uncoded(1)", "batch_size": 8}
    with coded(model, nn.CrossEntropyLoss(), data, **options) as run:
        loss = run.backward().loss
        rows = torch.from_numpy(run.batches.batch_of(0))
    with torch.autocast(device, torch.bfloat16):
        theirs = nn.functional.cross_entropy(twin(data[0][rows].to(device)), data[1][rows].to(device))
    theirs.backward()
    assert loss == pytest.approx(theirs.item(), rel=1e-3)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0.02, atol=2e-4)
