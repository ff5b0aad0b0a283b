"""Tree: what a model is made of, walked again when something has come or gone."""

import torch
from torch import nn

from unstraggle.torch.tree import Tree
from unstraggle.torch.watch import Watch

from ..torch_models import mlp


def test_a_tree_knows_when_something_has_come_or_gone():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    tree = Tree(model)
    first = tree.params()
    assert first == dict(model.named_parameters()) and tree.params() is first
    assert tree.tensors().keys() == {*dict(model.named_parameters()), *dict(model.named_buffers())}
    assert not tree.look()
    model[0].bias = None
    assert tree.look() and tree.params().keys() == dict(model.named_parameters()).keys()
    model.append(nn.Linear(2, 1))
    assert tree.look() and tree.params().keys() == dict(model.named_parameters()).keys() and "2" in tree.modules()
    model[1].register_buffer("more", torch.zeros(1))
    assert tree.look() and "1.more" in tree.buffers()
    model[2].weight = nn.Parameter(torch.ones(1, 2))
    assert tree.look() and tree.params()["2.weight"] is model[2].weight


def test_a_watch_sees_attributes_that_change_and_come():
    model = mlp()
    model[0].temperature, model[0].mask = 1.0, torch.ones(2)
    watch = Watch({"model": model}, set())
    assert watch.look() == {}
    model[0].mask = torch.zeros(2)  # cannot be compared as others can
    assert watch.look() == {}
    model[0].temperature = 2.0
    assert watch.look() == {"attributes": {"model.0.temperature": 2.0}}
    model[0].more = "new"
    assert watch.look()["attributes"] == {"model.0.temperature": 2.0, "model.0.more": "new"}
    model.append(nn.Linear(3, 3))
    model[6].requires_grad_(False)
    assert {"model.6.weight", "model.6.bias"} <= watch.look()["tensors"].keys()


def test_a_watch_says_whether_a_model_is_made_of_the_same():
    """As of the look before: whoever has seen a change may go on with what is there."""
    model = mlp()
    watch = Watch({"model": model}, set())

    def looks():
        watch.look()
        found = [watch.same]
        watch.look()
        return [*found, watch.same]

    assert looks() == [True, True]
    model[0].bias.requires_grad_(False)
    assert looks() == [False, True] and watch.moved == {"model.0.bias"}
    model[0].bias.requires_grad_(True)
    assert looks() == [False, True]
    model.append(nn.Linear(3, 3))
    watch.trees["model"].look()  # somebody else
    assert looks() == [False, True]
