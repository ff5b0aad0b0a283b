"""Codes that every contract test runs on: the examples that stand in the files of the schemes."""

from functools import cache

from unstraggle import Code, parse_code
from unstraggle.codes import SCHEMES
from unstraggle.scheme.decoders import Span


@cache
def example(expression: str) -> Code:
    return parse_code(expression)


def _exact(expression: str) -> bool:
    return all(isinstance(part.decoder, Span) for part in example(expression).decoder.parts())


P = tuple(round(0.1 + 0.05 * worker, 2) for worker in range(12))

ALL = tuple(dict.fromkeys(text for facts in SCHEMES.values() for text in facts.tried or [facts.expression(P)]))

HANDED_EXAMPLES = tuple(text for text in ALL if example(text).handing is not None)
"""Codes whose tasks are handed out while a round runs: their messages are not those of a fixed table."""

EXAMPLES = tuple(text for text in ALL if text not in HANDED_EXAMPLES and _exact(text))

APPROXIMATE_EXAMPLES = tuple(text for text in ALL if text not in EXAMPLES and text not in HANDED_EXAMPLES)
"""Codes whose gradient is not exact: they go with a deadline."""
