"""TwoTrackAdam: Adam where the tracks agree, 1 / c times Adam for the optimal structure, and a good citizen of torch."""

import copy
import pickle

import numpy as np
import pytest

import unstraggle as us
from unstraggle import Invalid
from unstraggle.plan import second_moment_weights, shrinkage

from ..plan.test_bits import grid

torch = pytest.importorskip("torch")
TwoTrackAdam = us.torch.TwoTrackAdam


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()


def backward(net, step):
    torch.manual_seed(1000 + step)
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(torch.randn(8, 5).double()), torch.randint(0, 3, (8,))).backward()


def flat(net, grads=False):
    return torch.cat([(p.grad if grads else p.data).reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"lr": 0.05, "betas": (0.5, 0.9), "eps": 1e-3}])
@pytest.mark.parametrize("given", ["nothing", "flat", "numpy", "list"])
def test_equal_tracks_are_adam(options, given):
    ours, theirs = network(), network()
    mine, adam = TwoTrackAdam(ours.parameters(), **options), torch.optim.Adam(theirs.parameters(), **options)
    for step in range(20):
        backward(ours, step), backward(theirs, step)
        grads = [p.grad for p in ours.parameters()]
        second = {"nothing": None, "flat": flat(ours, True), "numpy": flat(ours, True).numpy(), "list": grads}[given]
        mine.step(second=second), adam.step()
        assert torch.allclose(flat(ours), flat(theirs), rtol=1e-12, atol=1e-14)


def test_decoupled_decay_is_adamw():
    ours, theirs = network(), network()
    mine = TwoTrackAdam(ours.parameters(), weight_decay=0.1, decoupled_weight_decay=True)
    adamw = torch.optim.AdamW(theirs.parameters(), weight_decay=0.1)
    for step in range(5):
        backward(ours, step), backward(theirs, step)
        mine.step(), adamw.step()
    assert torch.allclose(flat(ours), flat(theirs), rtol=1e-12)


def test_tracks_follow_the_recursion():
    rng = np.random.default_rng(0)
    weight = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer = TwoTrackAdam([weight], lr=0.1, betas=(0.8, 0.95), eps=1e-4)
    m, v, theta = np.zeros(6), np.zeros(6), np.zeros(6)
    for t in range(1, 8):
        first, second = rng.standard_normal((2, 6))
        weight.grad = torch.from_numpy(first)
        optimizer.step(second=second)
        m, v = 0.8 * m + 0.2 * first, 0.95 * v + 0.05 * second**2
        theta = theta - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-4)
        assert np.allclose(weight.detach().numpy(), theta, rtol=1e-12)


@pytest.mark.parametrize("n", [10, 50])
def test_optimal_structure_multiplies_the_step_by_one_over_c(n):
    """With real weights: decode a random set of messages with both tracks, ten steps, eps = 0."""
    p = grid(n)
    omega = np.linspace(0.1, 3, n)
    code = us.codes.optimally_structured(p, omega=omega)
    both = us.plan.two_track(code, p, omega)
    c = shrinkage(p, omega)
    rng = np.random.default_rng(0)
    one, two = (torch.nn.Parameter(torch.zeros(30, dtype=torch.float64)) for _ in range(2))
    adam, tracks = torch.optim.Adam([one], eps=0.0), TwoTrackAdam([two], eps=0.0)
    for _ in range(10):
        messages = code.messages.coef @ rng.standard_normal((code.k, 30))
        first, second = both.decoder.weights(rng.random(n) < 0.3) @ messages
        one.grad, two.grad = torch.from_numpy(first), torch.from_numpy(first.copy())
        before = one.data.clone(), two.data.clone()
        adam.step(), tracks.step(second=second)
        moved = one.data - before[0] != 0
        assert moved.any() and torch.allclose((two.data - before[1])[moved], (one.data - before[0])[moved] / c, rtol=1e-6)


@pytest.mark.parametrize("pull", [1.0, 20.0])
def test_vector_objective_is_a_multiple_for_the_optimal_structure_too(pull):
    """M^T 1 = 1 and M 1 = W, so that w = c a solves the normal equations, c = pull Delta / (pull Delta + k)."""
    p, omega = grid(12), np.linspace(0.1, 3, 12)
    code = us.codes.optimally_structured(p, k=9, omega=omega)
    total = ((1 - p) / (p + omega)).sum()
    weights = second_moment_weights(code, p, omega, pull=pull, objective="vector")
    assert np.allclose(weights, pull * total / (pull * total + 9), rtol=1e-7)


def test_stochastic_code_has_a_true_second_track():
    p = grid(10)
    code = us.codes.stochastic(10, p)
    for objective in ("scalar", "vector"):
        ratio = second_moment_weights(code, p, objective=objective) / code.decoder.fixed[0]
        assert ratio.max() / ratio.min() > 1.5


def test_groups_schedulers_and_missing_gradients():
    net = network()
    first, last = net[0].parameters(), net[2].parameters()
    optimizer = TwoTrackAdam([{"params": list(first), "lr": 0.1}, {"params": list(last)}], lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    backward(net, 0)
    second = [p.grad.clone() for p in net.parameters()]
    net[2].bias.grad, second[3], kept = None, None, net[2].bias.data.clone()
    optimizer.step(second=second)
    scheduler.step()
    assert torch.equal(net[2].bias.data, kept)
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.005]


def test_resumed_equals_uninterrupted():
    through, broken = network(), network()
    a, b = TwoTrackAdam(through.parameters()), TwoTrackAdam(broken.parameters())
    for step in range(6):
        if step == 3:
            saved = pickle.loads(pickle.dumps((broken.state_dict(), b.state_dict())))
            broken = network(seed=9)
            b = TwoTrackAdam(broken.parameters(), lr=7.0)
            broken.load_state_dict(saved[0]), b.load_state_dict(copy.deepcopy(saved[1]))
        for net, optimizer in ((through, a), (broken, b)):
            backward(net, step)
            optimizer.step(second=0.7 * flat(net, True))
    assert torch.equal(flat(through), flat(broken))


def test_closure_is_called():
    net = network()
    optimizer = TwoTrackAdam(net.parameters())

    def closure():
        backward(net, 0)
        return 3.0

    assert optimizer.step(closure) == 3.0 and not torch.equal(flat(net), flat(network()))


@pytest.mark.parametrize(
    "second, words",
    [
        (torch.zeros(3), "flat vector of 39"),
        ([torch.zeros(3)], "each of 4 parameters"),
        ([torch.zeros(1)] * 4, "parameter 0 has shape"),
        ([None] * 4, "parameter 0 has shape"),
    ],
)
def test_bad_second_track_changes_nothing(second, words):
    net = network()
    optimizer = TwoTrackAdam(net.parameters())
    backward(net, 0)
    before = flat(net)
    with pytest.raises(Invalid, match=words):
        optimizer.step(second=second)
    assert torch.equal(flat(net), before) and not optimizer.state


@pytest.mark.parametrize("options", [{"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1e-8}, {"weight_decay": -1}])
def test_bad_options_are_refused(options):
    with pytest.raises(Invalid, match="TwoTrackAdam needs"):
        TwoTrackAdam(network().parameters(), **options)
