"""check_codec: passes for the codecs that are shipped, and finds each kind of broken one."""

from dataclasses import dataclass

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.quantizers import QSGD, ErrorFeedback, Identity, Plain, Sign
from unstraggle.testing import BrokenCodec, check_codec


@pytest.mark.parametrize(
    "codec", [*(QSGD(b) for b in range(2, 17)), QSGD(2, 512), QSGD(8, 1024), Sign(), Sign(512), Identity()], ids=repr
)
def test_own_quantisers_keep_the_contract(codec):
    report = check_codec(codec, draws=400)
    assert report.vectors == 4 and report.refused > 100 and report.worst_z < 5.5
    assert "keeps its promises" in str(report)


@dataclass(frozen=True)
class Wrong(QSGD):
    """A good quantiser to break."""


class Rounds(Wrong):
    def encode(self, x, seed, **how):
        return super().encode(x, 0, **how)


class Shrinks(Wrong):
    def accumulate(self, out, payloads, weights, *, threads=1):
        return super().accumulate(out, payloads, 0.97 * np.asarray(weights), threads=threads)


class Leans(Wrong):
    """One coordinate in 700 comes out a little too high."""

    def accumulate(self, out, payloads, weights, *, threads=1):
        before = out[:1].copy()
        found = super().accumulate(out, payloads, weights, threads=threads)
        found[:1] += np.float32(0.3) * (found[:1] - before)
        return found


class Jitters(Wrong):
    calls = 0

    def encode(self, x, seed, **how):
        type(self).calls += 1
        return super().encode(x, seed + self.calls, **how)


class Grows(Wrong):
    def size(self, length):
        return super().size(length) + 8


class Boasts(Wrong):
    def omega(self, dim, model="paper"):
        return super().omega(dim, model) / 100


class Understates(Wrong):
    def variance(self, x, *, relative=False):
        return 0.7 * super().variance(x, relative=relative)


class Forgets(Wrong):
    def accumulate(self, out, payloads, weights, *, threads=1):
        return super().accumulate(out, payloads, np.abs(weights), threads=threads)


class Trusts(Wrong):
    """Does not ask how long the payload is."""

    def check(self, payload, length, *, threads=1):
        return self._own(payload, threads)


class Crashes(Wrong):
    def check(self, payload, length, *, threads=1):
        try:
            return super().check(payload, length, threads=threads)
        except Invalid as error:
            raise IndexError("out of range") from error


class Leaks(Wrong):
    """Says that it finds changes by itself, and does not."""

    def check(self, payload, length, *, threads=1):
        try:
            return super().check(payload, length, threads=threads)
        except Invalid as error:
            if "checksum" in str(error):
                return super().check(super().encode(np.zeros(length), 0), length)
            raise


class Counts(Wrong):
    """Remembers each vector as often as it is asked."""

    def __post_init__(self):
        object.__setattr__(self, "seen", [0])

    def encode(self, x, seed, **how):
        self.seen[0] += 1
        return super().encode(x, seed if seed != 2 else self.seen[0], **how)


class Local(Wrong):
    """Becomes another one on its way to the worker."""

    def __reduce__(self):
        return QSGD, (self.bits + 1,)

    def __deepcopy__(self, memo):
        return self


class Scribbles(Wrong):
    def encode(self, x, seed, **how):
        payload = super().encode(x, seed, **how)
        if isinstance(x, np.ndarray) and len(x):
            x[0] = 0
        return payload


class Swallows(Wrong):
    def encode(self, x, seed, **how):
        return super().encode(np.nan_to_num(x, posinf=0, neginf=0), seed, **how)


@pytest.mark.parametrize(
    "broken, words",
    [
        (Rounds, "another seed"),
        (Shrinks, "biased"),
        (Leans, "biased"),
        (Jitters, "different bytes"),
        (Grows, "bytes"),
        (Boasts, "omega"),
        (Understates, "variance"),
        (Forgets, "accumulate"),
        (Trusts, "coordinates is accepted, but must be refused"),
        (Crashes, "must raise Invalid"),
        (Leaks, "changed in byte"),
        (Counts, "remembers twice"),
        (Local, "by pickle"),
        (Scribbles, "changes the vector"),
        (Swallows, "nan"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_quantisers_are_found(broken, words):
    with pytest.raises(BrokenCodec, match=words):
        check_codec(broken(bits=4), draws=400)


@pytest.mark.parametrize("codec", [ErrorFeedback(QSGD(bits=4)), ErrorFeedback(Sign(512), scaled=True)], ids=repr)
def test_codecs_with_a_memory_keep_the_contract_without_a_claim_to_be_unbiased(codec):
    report = check_codec(codec)
    assert report.worst_z is None and report.refused > 100 and "not claimed" in str(report)


def test_plain_numbers_keep_the_contract_without_a_seal():
    assert check_codec(Plain()).worst_z == 0


def test_what_is_no_codec():
    with pytest.raises(BrokenCodec, match="lacks bits, size, encode, check, accumulate"):
        check_codec(object())
    with pytest.raises(Invalid, match="100 <= draws"):
        check_codec(QSGD(bits=4), draws=10)
