"""Quantisers on CUDA tensors: the bytes and sums of the CPU, bit for bit.

Without a GPU the kernels run in the interpreter of Triton, on the CPU and in a process of its own, since it must be switched on
before Triton is imported: functions named interpreted_... are the tests of that process, at_length_... those of a slow one.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.quantizers import QSGD, Identity, Sign, decode, decoding, encoding, read, reference, wire

torch = pytest.importorskip("torch", reason="quantisers on CUDA need torch")
pytest.importorskip("triton", reason="quantisers on CUDA need triton")

ALL = [QSGD(bits, bucket) for bits in range(2, 17) for bucket in (None, 512)] + [Sign(), Sign(512), Identity()]
FEW = [QSGD(2, 512), QSGD(5), QSGD(8, 512), QSGD(16), Sign(512)]
"""A number of bits that divides a word and one that does not, the fewest and the most, with buckets and without."""
SOME = [QSGD(3), QSGD(4, 512), QSGD(5, 1536), Sign(), Sign(1536), Identity()]
WHOLE = 4 * 512
"""The blocks of one program."""
LONG = WHOLE + 700


def vector(length, seed=0):
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


def special_vectors():
    """Zero, one coordinate alone, few of them, tiny, huge, and all of these side by side; as names and vectors."""
    one, x = np.zeros(700, np.float32), vector(700, 7).astype(np.float64)
    one[600] = -2.5
    sparse = np.where(np.arange(1500) % 301 == 0, vector(1500, 3), np.float32(0))
    mixed = np.concatenate([x * 1e-41, np.zeros(324), x * 1e33, one, np.zeros(324), x]).astype(np.float32)
    yield from {"zero": np.zeros(600, np.float32), "one": one, "denormal": one * np.float32(1e-44), "sparse": sparse}.items()
    yield from {"tiny": np.float32(x * 1e-30), "huge": np.float32(x * 1e33), "mixed": mixed}.items()


@pytest.fixture
def doors(monkeypatch):
    """Tensors of the CPU go where those of a GPU go."""
    for module in (wire, encoding, decoding):
        monkeypatch.setattr(module, "on_device", torch.is_tensor)


def tensor(array, device):
    return torch.from_numpy(array.copy()).to(device)


def bits_of(array):
    return np.asarray(array).view(np.uint32).tolist()


def check_payload(quantizer, x, device, gain=1.0):
    expected = quantizer.encode(x, seed=2**63 + len(x), gain=gain)
    payload = quantizer.encode(tensor(x, device), seed=2**63 + len(x), gain=gain)
    assert payload.dtype == torch.uint8 and payload.device.type == device
    assert payload.cpu().numpy().tobytes() == expected.tobytes()
    return expected


def check_sums(quantizer, payload, x, device):
    """Of one message, and of nine in one call, which is more than go into one pass."""
    there, other = tensor(payload, device), quantizer.encode(x[::-1].copy(), seed=1)
    assert bits_of(quantizer.decode(there).cpu()) == bits_of(quantizer.decode(payload))
    weights = [0.3, -2.0, 1.5, 0.1, -0.2, 1.1, 3.0, 0.7, -0.01]
    expected = quantizer.accumulate(vector(len(x), 9), [payload, other] * 4 + [payload], weights)
    total = tensor(vector(len(x), 9), device)
    assert quantizer.accumulate(total, [there, other] * 4 + [there], weights) is total
    assert bits_of(total.cpu()) == bits_of(expected)


@pytest.mark.parametrize("quantizer", FEW, ids=repr)
def interpreted_payloads(quantizer, doors):
    check_encoded_and_decoded(quantizer)


@pytest.mark.parametrize("quantizer", ALL, ids=repr)
def at_length_payloads_of_all_formats(quantizer, doors):
    check_encoded_and_decoded(quantizer)


def check_encoded_and_decoded(quantizer):
    x = vector(LONG if quantizer.format.bucket == 0 else WHOLE, 5)
    payload = check_payload(quantizer, x, "cpu")
    found = read(tensor(payload, "cpu"))
    assert bits_of(quantizer.decode(found)) == bits_of(quantizer.decode(payload))
    if quantizer != Identity():
        steps, words = reference.encode(x, 2**63 + len(x), quantizer.format)
        assert bits_of(found.steps) == bits_of(steps) and bits_of(found.words) == words.tolist()


@pytest.mark.parametrize("quantizer", SOME, ids=repr)
def interpreted_lengths(quantizer, doors):
    for length in (0, 1, 513):
        check_payload(quantizer, vector(length, length), "cpu", gain=0.7)


@pytest.mark.parametrize("quantizer", [QSGD(3), QSGD(4, 512)], ids=repr)
def interpreted_special_vectors(quantizer, doors):
    for _, x in special_vectors():
        payload = check_payload(quantizer, x, "cpu")
        assert bits_of(decode(tensor(payload, "cpu"))) == bits_of(decode(payload))


@pytest.mark.parametrize("quantizer", SOME, ids=repr)
def interpreted_sums(quantizer, doors):
    x = vector(1300)
    check_sums(quantizer, quantizer.encode(x, seed=4), x, "cpu")


def interpreted_sums_of_different_formats(doors):
    payloads = [quantizer.encode(vector(1300, i), seed=i) for i, quantizer in enumerate(SOME)]
    weights = np.linspace(-1, 2, len(SOME))
    expected = decoding.accumulate(vector(1300, 9), payloads, weights)
    total = decoding.accumulate(tensor(vector(1300, 9), "cpu"), [tensor(payload, "cpu") for payload in payloads], weights)
    assert bits_of(total) == bits_of(expected)


def interpreted_memory_is_used_again(doors):
    x = vector(1300)
    for start in (0, 4, 1):  # whether a payload starts at a multiple of 16 bytes or not
        room = torch.full((QSGD(3, 512).size(1300) + start + 9,), 7, dtype=torch.uint8)[start:]
        payload = QSGD(3, 512).encode(tensor(x, "cpu"), seed=1, out=room)
        assert payload.data_ptr() == room.data_ptr()
        assert bytes(payload.numpy()) == bytes(QSGD(3, 512).encode(x, seed=1))
        total = torch.empty(1300)
        assert QSGD(3, 512).decode(payload, out=total) is total
        assert bits_of(total) == bits_of(decode(QSGD(3, 512).encode(x, seed=1)))


@pytest.mark.parametrize("quantizer", [QSGD(4), QSGD(4, 512), Sign(512), Identity()], ids=repr)
def interpreted_refusals_are_those_of_the_cpu(quantizer, doors):
    for value in (np.nan, np.inf, 3e38):
        x = vector(600)
        x[514:516] = value
        if quantizer == Identity() and np.isfinite(value):
            continue
        with pytest.raises(Invalid) as expected:
            quantizer.encode(x, seed=0)
        with pytest.raises(Invalid) as found:
            quantizer.encode(tensor(x, "cpu"), seed=0)
        assert str(found.value) == str(expected.value)


def interpreted_changed_payloads_leave_the_sum_as_it_was(doors):
    payload = QSGD(5, 512).encode(vector(1300), seed=4)
    total = torch.ones(1300)
    for place in (5, 20, 33, 49, 61, 70, len(payload) - 1):
        changed = payload.copy()
        changed[place] ^= 4
        with pytest.raises(Invalid) as expected:
            decode(changed)
        with pytest.raises(Invalid) as found:
            decoding.accumulate(total, [tensor(payload, "cpu"), tensor(changed, "cpu")], [1.0, 1.0])
        assert str(found.value) == str(expected.value)
    assert (total == 1).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, p: QSGD(4).encode(x.reshape(2, -1), seed=0),
        lambda x, p: QSGD(4).encode(x.to(torch.complex64), seed=0),
        lambda x, p: QSGD(4).encode(x, seed=-1),
        lambda x, p: QSGD(4).encode(x, seed=0, gain=np.inf),
        lambda x, p: QSGD(4).encode(x, seed=0, out=torch.empty(10, dtype=torch.uint8)),
        lambda x, p: QSGD(4).encode(x, seed=0, gain=3e38),
        lambda x, p: QSGD(3).decode(p),
        lambda x, p: QSGD(4).decode(p[:-1]),
        lambda x, p: QSGD(4).decode(p.to(torch.int32)),
        lambda x, p: QSGD(4).decode(p, out=torch.empty(3)),
        lambda x, p: QSGD(4).accumulate(x.to(torch.float64), [p], [1.0]),
        lambda x, p: QSGD(4).accumulate(x, [p], [np.nan]),
        lambda x, p: QSGD(4).accumulate(x, [p], [1e38]),
        lambda x, p: QSGD(4).accumulate(np.zeros(100, np.float32), [p], [1.0]),
    ],
    ids=range(14),
)
def interpreted_bad_input(call, doors):
    x = tensor(vector(100) * np.float32(100), "cpu")
    with pytest.raises(Invalid):
        call(x, QSGD(4).encode(x, seed=0))


def check_message_sums(device):
    """The kernel by which a device adds messages up: weights, a factor over a coordinate, and what it reports."""
    from unstraggle.torch.cudart import wait_for
    from unstraggle.torch.device_kernel import launch
    from unstraggle.torch.device_sum import nine

    length, head = 3000, 5
    for count, below, spoiled in [(1, -1, None), (3, 1, None), (3, 1, 17), (8, 1, 2999), (2, -1, 2), (1, -1, None)]:
        rows = [vector(length, seed) for seed in range(count)]
        for row in rows:
            row[1] = abs(row[1]) + 1
        if spoiled is not None:
            rows[-1][spoiled] = np.inf
        weights = tuple(0.5 + seed for seed in range(count))
        out = torch.empty(length, device=device)
        report = torch.zeros(3, dtype=torch.float64, pin_memory=device == "cuda")  # of the host: a device writes there, too
        vectors = [tensor(row, device) for row in rows]
        launch(out, report, nine(weights, 0.25, out.device), vectors, head=head, looks=2, below=below)
        total = sum(weight * row.astype(np.float64) for weight, row in zip(weights, rows, strict=True))
        expected = np.where(np.arange(length) < head, total, total * 0.25 / (total[1] if below >= 0 else 1.0))
        wait_for(out.device)
        np.testing.assert_allclose(out.cpu().numpy(), expected.astype(np.float32), rtol=1e-6)
        np.testing.assert_allclose(report.numpy(), [spoiled is not None, *total[:2]], rtol=1e-12)


def interpreted_message_sums():
    check_message_sums("cpu")


@pytest.mark.gpu
def test_sums_of_messages_on_a_gpu():
    check_message_sums("cuda")


@pytest.mark.parametrize("names", ["interpreted_*", pytest.param("at_length_*", marks=pytest.mark.slow)])
def test_kernels_in_the_interpreter(names):
    """Runs the functions above of these names."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    numpy_warns = [f"-Wignore:{what}:RuntimeWarning" for what in ("overflow", "invalid", "divide")]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", f"python_functions={names}", *numpy_warns]
    run = [sys.executable, "-m", "pytest", *options, __file__]
    result = subprocess.run(run, env=environment | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:]


@pytest.mark.gpu
@pytest.mark.parametrize("quantizer", ALL + SOME, ids=repr)
def test_payloads_and_sums_on_a_gpu(quantizer):
    for length in (1, 513, LONG, 100_003):
        x = vector(length, length)
        check_sums(quantizer, check_payload(quantizer, x, "cuda"), x, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("quantizer", SOME, ids=repr)
def test_special_vectors_on_a_gpu(quantizer):
    for _, x in special_vectors():
        check_sums(quantizer, check_payload(quantizer, x, "cuda", gain=0.7), x, "cuda")
