"""What compiled kernels do with addresses: read and write there, also past the caches.

Numba keeps what was compiled until the file of the kernel changes, not this one: see CONTRIBUTING.md.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,attr-defined,import-untyped"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

INT, WORD = ir.IntType(64), ir.IntType(32)


def load(b: Any, kind: Any, address: Any, offset: int = 0, align: int = 4) -> Any:
    pointer = b.inttoptr(b.add(address, INT(offset)), kind.as_pointer())
    return b.load(pointer, align=align)


def store(b: Any, value: Any, address: Any, offset: int = 0, align: int = 4, stream: bool = False) -> None:
    """stream: past the caches, which saves reading what is overwritten."""
    done = b.store(value, b.inttoptr(b.add(address, INT(offset)), value.type.as_pointer()), align=align)
    if stream:
        done.set_metadata("nontemporal", b.module.add_metadata([WORD(1)]))


@intrinsic
def bytes_at(context, address):
    """An address as a pointer to bytes."""
    kind = types.CPointer(types.uint8)
    return kind(types.int64), lambda context, b, signature, args: b.inttoptr(args[0], context.get_value_type(kind))


@intrinsic
def settle(context):
    """What was stored past the caches is there for other threads and processes."""

    def generate(context, b, signature, arguments):
        b.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
