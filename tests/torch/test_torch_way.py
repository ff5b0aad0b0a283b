"""The gradient's way on a CPU: parameters and messages are used where they stand."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle.errors import Invalid
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.serve import Abandoned
from unstraggle.runtime.sums import Pass
from unstraggle.torch import outgoing, staging
from unstraggle.torch.ferry import away
from unstraggle.torch.layout import layout_of
from unstraggle.torch.outgoing import Outgoing
from unstraggle.torch.replica import LARGE
from unstraggle.torch.staging import Staging

from ..torch_models import coded, mlp, params_of, table

pytestmark = pytest.mark.usefixtures("one_thread")


def within(tensor, array):
    begin = array.__array_interface__["data"][0]
    return begin <= tensor.data_ptr() < begin + array.nbytes


def test_a_worker_views_its_parameters_where_they_stand_and_adds_where_it_is_told():
    with coded(mlp(), data=table(), scheme="uncoded(2)") as run:
        problem = run.problem
        params, other = (params_of(run) for _ in range(2))
        params.flags.writeable = False
        expected = problem.grad(params, 0, step=0)
        assert not any(within(p, params) for p in problem.model.parameters())
        problem.stay()
        total = np.zeros(problem.dim, problem.dtype)
        for given in (other, params):
            total[:] = 0
            found = problem.accumulate(given, 0, slice(0, problem.dim), 0, 1.0, total)
            assert all(within(p, given) for p in problem.model.parameters())
        assert found is total and np.array_equal(total, expected)
        wide = params.astype(np.float64)  # another type: a copy
        assert np.allclose(problem.accumulate(wide, 0, slice(0, problem.dim), 0, 1.0, None), expected, atol=1e-6)
        assert not any(within(p, wide) for p in problem.model.parameters())


def test_gradients_are_views_of_what_was_decoded():
    model = mlp()
    with coded(model, data=table(), scheme="fractional_repetition(4, s=1)") as run:
        run.backward()
        storages = {p.grad.untyped_storage().data_ptr() for p in model.parameters()}
        assert len(storages) == 1
        before = [p.grad.clone() for p in model.parameters()]
        run.backward()  # adds up, and the memory of the first is not written again
        assert {p.grad.untyped_storage().data_ptr() for p in model.parameters()} == storages
        assert all(not torch.equal(p.grad, old) for p, old in zip(model.parameters(), before, strict=True))


def test_parameters_are_written_once_into_the_memory_of_the_workers():
    model = nn.Linear(6, 3)
    with coded(model, data=table(), scheme="uncoded(2)", engine="local") as run:
        for side in (0, 1, 0):
            room = run._params()
            assert room is run.master.engine._memory._sides[side]
            assert np.array_equal(room[run.layout.places["bias"]], model.bias.detach().numpy())
            run.backward()
            with torch.no_grad():
                model.bias += 1


def flat_of(model):
    layout = layout_of(model, loss=False)
    return Outgoing(layout), np.zeros(layout.dim, layout.dtype), list(layout.tensors(model).values()), layout


def looked(found):
    """What a pass has seen when it is over."""
    return found.fine() if isinstance(found, Pass) else found


def assert_written(outgoing, flat, tensors, layout):
    """As torch copies them, whatever the order in memory."""
    pieces = layout.cut(torch.from_numpy(flat), tensors)
    flat[:] = 7
    found = looked(outgoing.write(flat, tensors))
    assert all(torch.equal(piece, tensor) for piece, tensor in zip(pieces, tensors, strict=True))
    return found


@pytest.mark.parametrize("width", [3, 200, 600])  # 200: long enough for a kernel; 600: for another thread
def test_outgoing_parameters_are_looked_at_while_they_are_written(width):
    outgoing, flat, tensors, layout = flat_of(nn.Linear(width, width))
    assert assert_written(outgoing, flat, tensors, layout) is True
    with torch.no_grad():
        tensors[-1][0] = float("nan")
    assert looked(outgoing.write(flat, tensors)) is False and np.isnan(flat).any()
    with torch.no_grad():
        tensors[-1][0] = float("inf")
    assert looked(outgoing.write(flat, tensors)) is False
    with torch.no_grad():
        tensors[-1][0] = torch.finfo(torch.float32).max
    assert assert_written(outgoing, flat, tensors, layout) is True


def test_parameters_that_are_not_finite_are_refused_before_workers_have_their_order():
    model, data = nn.Linear(600, 300), (torch.randn(20, 600), torch.randn(20, 300))
    assert sum(p.numel() for p in model.parameters()) * 2 > WORTH
    with coded(model, nn.functional.mse_loss, data, scheme="uncoded(2)", engine="local", batch_size=10) as run:
        for value, _ in ((float("nan"), run.backward()), (float("inf"), run.backward())):
            with torch.no_grad():
                kept, model.weight[299, 599] = float(model.weight[299, 599]), value
            with pytest.raises(Invalid, match="parameters must be finite"):
                run.backward()
            with torch.no_grad():
                model.weight[299, 599] = kept
            assert run.backward().exact


def test_outgoing_parameters_may_move_between_steps_and_lie_in_any_order():
    outgoing, flat, tensors, layout = flat_of(nn.Conv2d(16, 64, 5).to(memory_format=torch.channels_last))
    assert assert_written(outgoing, flat, tensors, layout) is True
    for p in tensors:
        p.data = torch.randn_like(p)  # elsewhere, in the same order
    assert assert_written(outgoing, flat, tensors, layout) is True
    for p in tensors:
        p.data = torch.randn(p.shape)  # elsewhere, and no longer with channels last
    assert assert_written(outgoing, flat, tensors, layout) is None
    tensors[-1].data = torch.randn(1).expand(tensors[-1].shape)
    assert assert_written(outgoing, flat, tensors, layout) is None
    for p in tensors:
        p.data = torch.randn(p.shape).contiguous(memory_format=torch.channels_last) if p.ndim == 4 else torch.randn(p.shape)
    assert assert_written(outgoing, flat, tensors, layout) is True


@pytest.fixture
def as_on_a_device(monkeypatch):
    """The model's tensors count as those of a device, and pieces are short. Gives how often a vector went each way."""
    counts, up, down = Counter(), Staging.up, Staging.down
    monkeypatch.setattr(staging, "PIECE", 64)
    monkeypatch.setattr(Staging, "up", lambda *given: (counts.update(["up"]), up(*given))[1])
    monkeypatch.setattr(Staging, "down", lambda *given: (counts.update(["down"]), down(*given))[1])
    monkeypatch.setattr(outgoing, "away", lambda tensors: tensors[0].device)
    return counts


@pytest.mark.parametrize("align", [1, 16])
def test_parameters_of_a_device_go_to_the_host_in_one_pass(align, as_on_a_device):
    model = nn.Sequential(nn.Conv2d(3, 8, 5).to(memory_format=torch.channels_last), nn.BatchNorm2d(8))
    layout = replace(layout_of(model), align=align)
    flat, tensors, there = np.full(layout.dim, 7.0, "f4"), list(layout.tensors(model).values()), Outgoing(layout)
    for value in (1.0, 2.0):
        with torch.no_grad():
            tensors[-1].fill_(value)
        found = there.write(flat, tensors)
        pieces = layout.cut(torch.from_numpy(flat), tensors)
        assert all(torch.equal(piece, tensor) for piece, tensor in zip(pieces, tensors, strict=True))
        assert found() and flat[0] == 0, "the head is zero"
        assert np.count_nonzero(flat) == sum(int(tensor.count_nonzero()) for tensor in tensors), "and so are gaps"
    with torch.no_grad():
        tensors[-1][0] = float("nan")
    assert not there.write(flat, tensors)() and as_on_a_device["down"] == 3


@pytest.mark.parametrize("device", ["as on a device", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_gradients_go_to_a_device_in_one_pass_and_are_views_of_what_came(device, request):
    """Beside the same steps of a model on a CPU; with statistics, and gradients that add up."""
    found, counts = [], None
    for home in ("cpu", device):
        if home == "as on a device":
            counts, home = request.getfixturevalue("as_on_a_device"), "cpu"
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to(home)
        with coded(model, data=table(), scheme="cyclic_repetition(4, s=1)") as run:
            for _ in range(3):
                assert run.backward().exact
        grads = [p.grad for p in model.parameters()]
        found.append([tensor.detach().cpu() for tensor in (*grads, model[1].running_mean)])
    assert counts is None or counts == {"up": 3, "down": 3}
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*found, strict=True))


def test_gradients_of_a_device_share_one_vector(as_on_a_device):
    model = mlp()
    with coded(model, data=table(), scheme="cyclic_repetition(4, s=1)") as run:
        run.backward()
        first = [p.grad for p in model.parameters()]
        kept = [grad.clone() for grad in first]
        assert len({grad.untyped_storage().data_ptr() for grad in first}) == 1
        model.zero_grad()
        run.backward()
        assert all(torch.equal(grad, was) for grad, was in zip(first, kept, strict=True)), (
            "gradients of the step before changed"
        )


def test_tensors_on_a_cpu_or_on_several_devices_go_one_by_one():
    here, there = torch.zeros(2), torch.zeros(2, device="meta")
    assert away([here, here]) is None and away([here, there]) is None and away([there, here]) is None
    assert away([there, there]) == torch.device("meta")


@pytest.mark.parametrize("width", [3, 3000])
def test_parameters_that_are_not_finite_are_refused(width):
    model = nn.Linear(6, width)
    with coded(model, data=table(), scheme="uncoded(2)", loss_fn=lambda y, t: y.sum() * 0) as run:
        with torch.no_grad():
            model.weight[0, 0] = float("inf")
        with pytest.raises(Invalid, match="parameters must be finite"):
            run.backward()


class Reached(nn.Module):
    """Parameters of every kind: large and small, with sparse gradients, used twice, in a checkpoint, and not reached."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(LARGE // 8, 8)
        self.wide, self.back = nn.Linear(8, LARGE // 8), nn.Linear(LARGE // 8, 8)
        self.small, self.idle = nn.Linear(8, 3), nn.Linear(8, LARGE // 8)

    def forward(self, x):
        x = nn.functional.embedding(x[:, 0].long().abs(), self.words.weight, sparse=True)
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(lambda x: self.back(torch.tanh(self.wide(x))), x, use_reentrant=True)
        return self.small(x)


def test_first_gradients_may_be_written_over_what_there_is_and_others_are_added():
    with coded(Reached(), data=table(), scheme="uncoded(2)", check=False) as run:
        problem, params = run.problem, params_of(run)
        total, whole = np.full(problem.dim, 7, problem.dtype), slice(0, problem.dim)
        assert not problem.overwrite(total)  # nothing is known yet: it wants zeros
        first, second = (problem.grad(params, part) for part in range(2))
        assert problem.overwrite(total)
        assert problem.accumulate(params, 0, whole, 0, 1.0, total) is total
        assert np.array_equal(total, first)
        problem.accumulate(params, 1, whole, 0, 2.0, total)
        assert np.allclose(total, first + 2 * second, rtol=1e-6, atol=1e-7)
        assert not total[run.layout.places["idle.weight"]].any() and total[run.layout.places["words.weight"]].any()


def test_a_pass_that_was_left_spoils_no_gradient_that_is_written_over_it():
    model = nn.Sequential(nn.Linear(6, LARGE // 6 + 1), nn.Linear(LARGE // 6 + 1, 3))
    with coded(model, data=table(), scheme="uncoded(2)") as run:
        problem, params, whole = run.problem, params_of(run), slice(0, run.problem.dim)
        total, other = (np.full(problem.dim, value, problem.dtype) for value in (7, 1))
        expected = problem.grad(params, 0)
        answers = iter([False, False, False, True])
        problem.heed(lambda: next(answers, False))
        assert problem.overwrite(total)
        with pytest.raises(Abandoned):
            problem.accumulate(params, 1, whole, 0, 1.0, total)
        left, before = total.copy(), other.copy()
        assert problem.overwrite(total)
        problem.accumulate(params, 0, whole, 0, 1.0, other)  # a sum of its own: what stands in it counts
        assert np.allclose(other, before + expected, rtol=1e-6, atol=1e-6) and np.array_equal(total, left)
        assert problem.overwrite(total)
        assert np.array_equal(problem.accumulate(params, 0, whole, 0, 1.0, total), expected)


def test_a_slice_is_added_to_zeros():
    with coded(mlp(), data=table(), scheme="uncoded(2)") as run:
        problem, params, where = run.problem, params_of(run), slice(3, 40)
        expected = np.array(problem.grad(params, 0, where))
        total = np.full(37, 7, problem.dtype)
        assert problem.overwrite(total)
        assert np.array_equal(problem.accumulate(params, 0, where, 0, 1.0, total), expected)


@pytest.mark.parametrize(("scheme", "known"), [("uncoded(2)", True), ("cyclic_repetition(4, s=1)", False)])
def test_gradients_are_cut_while_workers_compute_where_it_is_known_where_they_will_be(scheme, known):
    """And only then: weights that depend on who came are known at the end."""
    model, seen = mlp(), []
    with coded(model, data=table(), scheme=scheme) as run:
        prepare = run._prepare
        run._prepare = lambda *given: (prepare(*given), seen.append([p.grad for p in model.parameters()]))
        run.backward()
        assert all((grad is not None) is known for grad in seen[0])
        if known:
            assert all(p.grad is grad for p, grad in zip(model.parameters(), seen[0], strict=True))
        first = [p.grad.clone() for p in model.parameters()]
        kept = [p.grad for p in model.parameters()]
        model.zero_grad()
        run.backward()
        assert all(torch.equal(old, same) for old, same in zip(kept, first, strict=True))  # somebody has them still
