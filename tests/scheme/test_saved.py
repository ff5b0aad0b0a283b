"""Saved codes: what is read is what was saved, to the bit, and a file from a stranger can do no more than be refused."""

import io
import json
import pickle
import zipfile
from dataclasses import dataclass, replace

import numpy as np
import pytest

from unstraggle import Code, Invalid, codes, plan
from unstraggle.latency import ShiftedExponential
from unstraggle.quantizers import QSGD, ErrorFeedback
from unstraggle.scheme.decoders import Linear
from unstraggle.scheme.saved import packed, same_code
from unstraggle.study.expression import find_code

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example


@pytest.mark.parametrize("expression", EXAMPLES + APPROXIMATE_EXAMPLES)
def test_every_code_comes_back_to_the_bit(expression, tmp_path):
    code = example(expression)
    code.save(tmp_path / "code.npz")
    again = Code.read(tmp_path / "code.npz")
    assert same_code(again, code) and again.name == code.name and repr(again.messages.codec) == repr(code.messages.codec)
    assert type(again.decoder) is type(code.decoder) and again.decoder.rule == code.decoder.rule
    everything = np.ones(len(code.messages), dtype=bool)
    assert again.decoder.weights(everything).tobytes() == code.decoder.weights(everything).tobytes()


@dataclass(frozen=True)
class Halves(QSGD):
    """A codec of a stranger."""

    half: float = 0.5


def test_codecs_with_memory_and_of_strangers(tmp_path):
    """What a codec remembers is not saved; a class of one's own is named by who reads the file."""
    feedback = codes.quantize(codes.uncoded(2), codec=ErrorFeedback(QSGD(4), scaled=True))
    feedback.messages.codec[0].encode(np.ones(4), seed=0)
    feedback.save(tmp_path / "code.npz")
    again = Code.read(tmp_path / "code.npz").messages.codec[0]
    assert again.scaled and again.codec == QSGD(4) and again.error is None
    codes.quantize(codes.uncoded(2), codec=Halves(4, half=0.25)).save(tmp_path / "code.npz")
    with pytest.raises(Invalid, match=r"The saved codec 'Halves' is not of this library. Give its class"):
        Code.read(tmp_path / "code.npz")
    assert Code.read(tmp_path / "code.npz", codecs=[Halves]).messages.codec[1] == Halves(4, half=0.25)


def test_a_code_without_an_expression_is_found_by_its_file(tmp_path):
    code = plan.deadline(ShiftedExponential(rate=1, shift=1), n=4, dim=100, budget=20).code
    code.save(tmp_path / "code.npz")
    assert same_code(find_code(str(tmp_path / "code.npz")), code)


@pytest.mark.parametrize(
    "change",
    [
        lambda code: replace(code, tasks=type(code.tasks)(code.tasks.worker, code.tasks.part, code.tasks.block, 2.0)),
        lambda code: replace(code, decoder=type(code.decoder)(code.decoder.rows)),
        lambda code: codes.quantize(code, bits=8),
        lambda code: codes.cluster(code),
    ],
)
def test_codes_that_differ_are_not_the_same(change):
    code = codes.cyclic_repetition(6, s=2)
    assert same_code(code, replace(code, name="another")) and not same_code(code, change(code))


@dataclass(frozen=True, eq=False)
class Halved(Linear):
    """A decoder of a stranger."""

    factor: float = 0.5

    def _weights(self, got):
        return self.factor * got[None]


class Alien:
    """A decoder that shares nothing with those of the library."""

    size, rule = 3, None

    def parts(self):
        from unstraggle.scheme.decoders import Part

        return (Part(np.arange(3), self),)


def test_decoders_of_strangers(tmp_path):
    code = codes.ignore_stragglers(3)
    own = replace(code, decoder=Halved(code.messages.coef, factor=0.25))
    own.save(tmp_path / "own.npz")
    with pytest.raises(Invalid, match=r"decoder 'Halved' is not of this library. Give its class: Code.read"):
        Code.read(tmp_path / "own.npz")
    again = Code.read(tmp_path / "own.npz", decoders=[Halved])
    assert again.decoder.factor == 0.25 and same_code(again, own)
    with pytest.raises(Invalid, match="decoder Alien is not a Linear one"):
        replace(code, decoder=Alien()).save(tmp_path / "alien.npz")


# hostile files


class Bomb:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return pytest.fail, ("a file made the reader run code",)


def write(path, header, arrays):
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, header=text, **arrays)


def with_table(**tables):
    return lambda header, arrays: (header, {**arrays, **{key.replace("__", "."): value for key, value in tables.items()}})


def with_header(**words):
    return lambda header, arrays: ({**header, **words}, arrays)


def with_piece(**words):
    return lambda header, arrays: ({**header, "pieces": [{**header["pieces"][0], **words}]}, arrays)


HOSTILE = {
    "another format": (with_header(format="other 7"), "its format is not"),
    "no header": (lambda header, arrays: ([], arrays), "its format is not"),
    "no name": (with_header(name=3), "needs a name"),
    "workers that are not there": (with_header(n=2), "Tasks.worker must lie in 0..1"),
    "words for workers": (with_header(n="many"), "not a saved code, or it is damaged"),
    "a missing table": (lambda header, arrays: (header, {k: v for k, v in arrays.items() if k != "tasks.part"}), "damaged"),
    "places outside a sparse table": (with_table(messages__coef__indices=np.full(18, 10**6)), "damaged"),
    "negative places": (with_table(messages__coef__indices=np.full(18, -5)), "damaged"),
    "ends outside a sparse table": (with_table(messages__coef__indptr=np.array([0, 3, 6, 9, 12, 15, 10**9])), "damaged"),
    "rows of another size": (with_table(decoder__0__rows__shape=np.array([5, 6])), "damaged"),
    "messages twice": (with_table(decoder__0__of=np.zeros(6, dtype=int)), "each of the 6 messages in one of its parts"),
    "messages that are not there": (with_table(decoder__0__of=np.arange(1, 7)), "each of the 6 messages"),
    "a rule of other messages": (with_piece(rule={"count": 1, "of": [99]}), "not among the 6"),
    "a rule of negative messages": (with_piece(rule={"count": 1, "of": [-1]}), "not among the 6"),
    "a rule that asks too much": (with_piece(rule={"count": 9, "of": [0, 1]}), "needs 1 <= count"),
    "a rule of words": (with_piece(rule={"count": 1, "of": ["os.system"]}), "whole numbers, but has 'os.system'"),
    "an unknown decoder": (with_piece(kind="builtins.eval"), "is not of this library"),
    "a field that is not one": (with_piece(fields=["rows", "target", "of", "tasks.worker"]), "damaged"),
    "an unknown codec": (with_header(codecs=[{"kind": "system"}]), "codec 'system'"),
    "work that is not a number": (with_table(tasks__work=np.full(18, np.nan)), "positive finite numbers"),
    "text for numbers": (with_table(tasks__part=np.array(["rm -rf"] * 18)), "does not hold numbers"),
    "blocks that are too large": (with_header(blocks=[2.0, 2.0]), "positive fractions"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files_are_refused(what, tmp_path):
    change, said = HOSTILE[what]
    header, arrays = packed(codes.cyclic_repetition(6, s=2))
    write(tmp_path / "code.npz", *change(header, dict(arrays)))
    with pytest.raises(Invalid, match=said):
        Code.read(tmp_path / "code.npz")


def test_a_rule_nested_without_end(tmp_path):
    header, arrays = packed(codes.uncoded(3))
    deep = '{"count": 1, "of": [' * 50_000 + "0" + "]}" * 50_000
    text = json.dumps({**header, "pieces": [{**header["pieces"][0], "rule": "RULE"}]}).replace('"RULE"', deep)
    np.savez(tmp_path / "code.npz", header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)
    with pytest.raises(Invalid, match="nested too deep"):
        Code.read(tmp_path / "code.npz")


def test_files_that_are_no_archives(tmp_path):
    path = tmp_path / "code.npz"
    for data in (b"", b"PK\x03\x04", pickle.dumps(Bomb()), b"x" * 1000):
        path.write_bytes(data)
        with pytest.raises(Invalid, match="is not a saved code, or it is damaged"):
            Code.read(path)
    with pytest.raises(Invalid, match="There is no file"):
        Code.read(tmp_path / "none.npz")


def test_pickles_inside_are_never_opened(tmp_path):
    header, arrays = packed(codes.uncoded(3))
    inside = io.BytesIO()
    np.save(inside, np.array([Bomb()], dtype=object), allow_pickle=True)
    path = tmp_path / "code.npz"
    write(path, header, {key: table for key, table in arrays.items() if key != "tasks.part"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("tasks.part.npy", inside.getvalue())
    with pytest.raises(Invalid, match="damaged"):
        Code.read(path)


def test_a_small_file_that_claims_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("unstraggle.scheme.saved.LARGEST", 10_000)
    codes.uncoded(3000).save(tmp_path / "code.npz")
    with pytest.raises(Invalid, match=r"claims to hold \d+ bytes; a code has at most 10000"):
        Code.read(tmp_path / "code.npz")


@pytest.mark.parametrize("seed", range(20))
def test_damaged_files_are_refused_or_read(seed, tmp_path):
    """Bits flipped anywhere: never anything but the same code or `Invalid`."""
    code, path = codes.cluster(codes.cyclic_repetition(4, s=1), times=2), tmp_path / "code.npz"
    code.save(path)
    rng, data = np.random.default_rng(seed), bytearray(path.read_bytes())
    for place in rng.integers(len(data), size=3).tolist():
        data[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))
    try:
        assert same_code(Code.read(path), code)
    except Invalid as error:
        assert str(error)
