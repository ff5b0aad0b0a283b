"""Codes as files: all tables and the decoder in one .npz, without pickle, so that a file from anywhere can be read.

A file holds numbers, and a header of JSON that says what they are. Reading one runs no code that it brings: classes are looked
up by name among those that the library knows or the reader names.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..checks import parsed_json
from ..doors import door
from ..errors import Invalid
from .code import Code, Messages, Tasks
from .decoders import Linear, Parts, parts_of
from .handing import Handing
from .saved_codecs import codec_from, codec_words
from .saved_tables import NUMBERS, Arrays, part, piece, put, require_split, sparse

FORMAT = "unstraggle code 1"

TASKS = ("worker", "part", "block", "work")
MESSAGES = ("worker", "after", "block", "coef", "mixes")

LARGEST = 1 << 32
"""Bytes of all tables of a file that is read: a small file can claim to hold far more."""

PLACE = os.PathLike[str] | str

UNREADABLE = (ValueError, KeyError, TypeError, IndexError, OSError, EOFError, OverflowError, MemoryError, RecursionError)
DAMAGED = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


def save(code: Code, path: PLACE) -> None:
    """Write a code to a file, whose name should end with .npz."""
    header, arrays = packed(code)
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=text, **arrays)


def read(path: PLACE, decoders: Sequence[type[Linear]] = (), codecs: Sequence[type[Any]] = ()) -> Code:
    """The code in a file. decoders, codecs: classes that the library does not know, where the file has some."""
    if not Path(path).is_file():
        raise Invalid(f"There is no file {os.fspath(path)!r} to read a code from.")
    try:
        header, arrays = _opened(path)
        return unpacked(header, arrays, decoders, codecs)
    except Invalid:
        raise
    except (*UNREADABLE, *DAMAGED) as error:
        raise Invalid(f"{os.fspath(path)!r} is not a saved code, or it is damaged: {type(error).__name__}: {error}.") from error


@door
def same_code(first: Code, second: Code) -> bool:
    """Whether two codes do the same to the bit, whatever their names are: equal tables, decoders, blocks, data and bits.

    >>> from unstraggle.codes import correlated_mmc, uncoded_mmc
    >>> same_code(uncoded_mmc(6, load=2), correlated_mmc(6, load=2, order=1))
    True
    """
    one, other = packed(first), packed(second)
    same = {**one[0], "name": ""} == {**other[0], "name": ""} and one[1].keys() == other[1].keys()
    return same and all(_equal(table, other[1][key]) for key, table in one[1].items())


def packed(code: Code) -> tuple[dict[str, Any], Arrays]:
    """The header and the tables of a code."""
    arrays: Arrays = {}
    put(arrays, "tasks", vars(code.tasks), TASKS)
    put(arrays, "messages", vars(code.messages), MESSAGES)
    words = [codec_words(codec) for codec in code.messages.codec]
    codecs = {json.dumps(each, sort_keys=True): each for each in words}
    arrays["messages.codec"] = np.array([list(codecs).index(json.dumps(each, sort_keys=True)) for each in words])
    if code.data is not None:
        put(arrays, "code", {"data": csr_array(code.data)}, ["data"])
    pieces = [piece(arrays, number, each) for number, each in enumerate(parts_of(code.decoder))]
    header = {
        "format": FORMAT,
        "name": code.name,
        "n": int(code.n),
        "blocks": [float(size) for size in code.blocks],
        "encoded": code.data is not None,
        "joined": isinstance(code.decoder, Parts),
        "pieces": pieces,
        "codecs": list(codecs.values()),
        "handing": None if code.handing is None else asdict(code.handing) | {"owner": list(code.handing.owner)},
    }
    return header, arrays


def unpacked(
    header: dict[str, Any], arrays: Arrays, decoders: Sequence[type[Linear]] = (), codecs: Sequence[type[Any]] = ()
) -> Code:
    """The code of a header and tables; everything is checked."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise Invalid(f"This is not a code that this version wrote: its format is not {FORMAT!r}.")
    if not isinstance(header["name"], str):
        raise Invalid(f"A saved code needs a name, but has {header['name']!r}.")
    tasks = Tasks(**{name: arrays[f"tasks.{name}"] for name in TASKS})
    messages = _messages(header, arrays, codecs)
    pieces = [part(arrays, number, words, decoders) for number, words in enumerate(header["pieces"])]
    require_split(pieces, len(messages))
    decoder: Any = Parts(tuple(pieces)) if header["joined"] else pieces[0].decoder
    data = sparse(arrays, "code.data") if header["encoded"] else None
    blocks = tuple(float(size) for size in header["blocks"])
    return Code(header["name"], int(header["n"]), tasks, messages, decoder, blocks, data, _handing(header.get("handing")))


def _handing(words: Any) -> Handing | None:
    """How tasks are handed out, where they are; in files of earlier versions they never are."""
    if words is None:
        return None
    owner, helpers, reserve, in_order = (words[name] for name in ("owner", "helpers", "reserve", "in_order"))
    return Handing(tuple(map(int, owner)), bool(helpers), int(reserve), bool(in_order))


def _messages(header: dict[str, Any], arrays: Arrays, codecs: Sequence[type[Any]]) -> Messages:
    known = [codec_from(words, codecs) for words in header["codecs"]]
    columns: dict[str, Any] = {name: arrays[f"messages.{name}"] for name in MESSAGES if name != "coef"}
    codec = [known[number] for number in arrays["messages.codec"].tolist()]
    return Messages(coef=sparse(arrays, "messages.coef"), codec=codec, **columns)


def _opened(path: PLACE) -> tuple[dict[str, Any], Arrays]:
    with zipfile.ZipFile(path) as file:
        claimed = sum(entry.file_size for entry in file.infolist())
    if claimed > LARGEST:
        raise Invalid(f"{os.fspath(path)!r} claims to hold {claimed} bytes; a code has at most {LARGEST}.")
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    wrong = [name for name, table in arrays.items() if table.dtype.kind not in NUMBERS]
    if wrong:
        raise Invalid(f"{os.fspath(path)!r} is not a saved code: {wrong[0]} does not hold numbers.")
    return parsed_json(arrays.pop("header").tobytes()), arrays


def _equal(first: NDArray[Any], second: NDArray[Any]) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()
