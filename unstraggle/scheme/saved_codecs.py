"""Codecs as words of JSON, and back: what `saved` puts into the header of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from ..errors import Invalid
from ..quantizers.base import Codec


def codec_words(codec: Codec) -> dict[str, Any]:
    """The kind of a codec and its parameters; of one with memory, not what it remembers."""
    from ..quantizers import ErrorFeedback

    if isinstance(codec, ErrorFeedback):
        return {"kind": "ErrorFeedback", "codec": codec_words(codec.codec), "scaled": codec.scaled, "model": codec.model}
    if not is_dataclass(codec):
        raise Invalid(
            f"A code with {codec!r} cannot be saved. Let the codec be a dataclass of numbers and words, or quantise later."
        )
    return {"kind": type(codec).__name__, **{field.name: getattr(codec, field.name) for field in fields(codec)}}


def codec_from(words: dict[str, Any], codecs: Sequence[type[Any]] = ()) -> Codec:
    """The codec of these words. codecs: classes that the library does not know."""
    from .. import quantizers

    own = (quantizers.ErrorFeedback, quantizers.Identity, quantizers.Plain, quantizers.QSGD, quantizers.Sign)
    known = {kind.__name__: kind for kind in (*own, *codecs)}
    kind, given = words["kind"], {key: value for key, value in words.items() if key != "kind"}
    if kind not in known:
        raise Invalid(f"The saved codec {kind!r} is not of this library. Give its class: Code.read(path, codecs=[...]).")
    if kind == "ErrorFeedback":
        given["codec"] = codec_from(given["codec"], codecs)
    return known[kind](**given)  # type: ignore[no-any-return]
