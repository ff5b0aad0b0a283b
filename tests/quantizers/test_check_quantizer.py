"""check_quantizer: passes for the quantisers that are shipped, and finds each kind of broken one."""

from dataclasses import dataclass

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.quantizers import QSGD, ErrorFeedback, Identity, Sign
from unstraggle.testing import BrokenQuantizer, check_quantizer


@pytest.mark.parametrize(
    "quantizer", [*(QSGD(b) for b in range(2, 17)), QSGD(2, 512), QSGD(8, 1024), Sign(), Sign(512), Identity()], ids=repr
)
def test_own_quantisers_keep_the_contract(quantizer):
    report = check_quantizer(quantizer, draws=400)
    assert report.vectors == 4 and report.refused > 100 and report.worst_z < 5.5
    assert "keeps its promises" in str(report)


@dataclass(frozen=True)
class Wrong(QSGD):
    """A good quantiser to break."""


class Rounds(Wrong):
    def encode(self, x, seed, **how):
        return super().encode(x, 0, **how)


class Shrinks(Wrong):
    def decode(self, payload, *, out=None, threads=1):
        return np.multiply(super().decode(payload, threads=threads), np.float32(0.97), out=out)


class Leans(Wrong):
    """One coordinate in 700 comes out a little too high."""

    def decode(self, payload, *, out=None, threads=1):
        found = super().decode(payload, out=out, threads=threads)
        found[:1] *= np.float32(1.3)
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
    def decode(self, payload, *, out=None, threads=1):
        try:
            return super().decode(payload, out=out, threads=threads)
        except Invalid:
            return np.zeros(700, np.float32)


class Crashes(Wrong):
    def decode(self, payload, *, out=None, threads=1):
        try:
            return super().decode(payload, out=out, threads=threads)
        except Invalid as error:
            raise IndexError("out of range") from error


class Half(Wrong):
    """Adds the good payload before it looks at the bad one."""

    def accumulate(self, out, payloads, weights, *, threads=1):
        if np.ndim(weights) == 0:
            return super().accumulate(out, payloads, weights, threads=threads)
        for payload, weight in zip(payloads, weights, strict=True):
            super().accumulate(out, payload, weight, threads=threads)
        return out


class Scribbles(Wrong):
    def encode(self, x, seed, **how):
        payload = super().encode(x, seed, **how)
        if isinstance(x, np.ndarray) and len(x):
            x[0] = 0
        return payload


class Swallows(Wrong):
    def encode(self, x, seed, **how):
        return super().encode(np.nan_to_num(x, posinf=0, neginf=0), seed, **how)


class Silent(Wrong):
    def encode(self, x, seed, *, gain=1.0, **how):
        return super().encode(x, seed, **how)


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
        (Trusts, "must be refused"),
        (Crashes, "must raise Invalid"),
        (Half, "part of the sum"),
        (Scribbles, "changes the vector"),
        (Swallows, "nan"),
        (Silent, "gain=2"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_quantisers_are_found(broken, words):
    with pytest.raises(BrokenQuantizer, match=words):
        check_quantizer(broken(bits=4), draws=400)


def test_what_is_no_quantiser_or_has_a_memory():
    with pytest.raises(BrokenQuantizer, match="lacks"):
        check_quantizer(object())
    with pytest.raises(BrokenQuantizer, match="different bytes"):
        check_quantizer(ErrorFeedback(QSGD(bits=4)))
    with pytest.raises(Invalid, match="draws >= 100"):
        check_quantizer(QSGD(bits=4), draws=10)
