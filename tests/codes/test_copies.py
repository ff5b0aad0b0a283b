"""Copies of a message are equal to the bit, so that a gradient does not depend on whose copy came first."""

import numpy as np
import pytest

from unstraggle import work

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

ROUNDED_APART = "hybrid("
"""Workers of a cluster begin at different partitions, or their first messages would all be the same; so they add up what they
hold in different orders, and their last messages, the plain sums, agree up to rounding only."""


def partial(part, block):
    return np.random.default_rng((part, block)).standard_normal(50, dtype=np.float32)


def added(part, block, coef, total):
    product = np.float32(coef) * partial(part, block)
    return product if total is None else total + product


def payloads(code, accumulate=None):
    """The bytes of every message."""
    sent = {}
    for worker in range(code.n):
        keep = lambda message, payload: sent.update({message.index: payload.tobytes()})  # noqa: E731
        work(code.program(worker), partial, keep, accumulate=accumulate)
    return sent


def copies(code):
    """Sets of messages that the decoder takes for one another."""
    for part in code.decoder.parts():
        for number in range(int(part.decoder.ids.max()) + 1):
            yield part.messages[part.decoder.ids == number].tolist()


def different(code, accumulate=None):
    """Copies that are not alike."""
    sent = payloads(code, accumulate)
    return [same for same in copies(code) if len({sent[m] for m in same}) > 1]


@pytest.mark.parametrize("expression", [text for text in EXAMPLES + APPROXIMATE_EXAMPLES if ROUNDED_APART not in text])
def test_copies_are_equal_to_the_bit(expression):
    code = example(expression)
    assert different(code) == []
    if not np.iscomplexobj(code.messages.coef.data):
        assert different(code, added) == []
