"""The kernel of `sums`: loaded only for long vectors."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator, attr-defined, call-arg"

import numpy as np
from numba import carray, njit

from .quantizers.cpu_kernels import bytes_at

CHUNK = 2048
"""Coordinates whose sum stays in the first cache while vectors are added, four in a pass."""


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_all(out, addresses, weights, like, fresh):
    """out[i] = sum over m of weights[m] * vector m at i, or += if not fresh. addresses: of vectors with the type of `like`."""
    room = np.empty(CHUNK, np.float64)
    for start in range(0, len(out), CHUNK):
        count = min(CHUNK, len(out) - start)
        for i in range(count):
            room[i] = 0.0 if fresh else out[start + i]
        m = 0
        while m + 4 <= len(addresses):
            a, b = at(addresses[m], start, count, like), at(addresses[m + 1], start, count, like)
            c, d = at(addresses[m + 2], start, count, like), at(addresses[m + 3], start, count, like)
            add_four(room, count, a, b, c, d, weights[m], weights[m + 1], weights[m + 2], weights[m + 3])
            m += 4
        while m < len(addresses):
            add_one(room, count, at(addresses[m], start, count, like), weights[m])
            m += 1
        for i in range(count):
            out[start + i] = room[i]


@njit(cache=True, nogil=True)
def at(address, start, count, like):
    size = like.itemsize
    return carray(bytes_at(address + np.uint64(size * start)), (size * count,)).view(like.dtype)


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_four(room, count, a, b, c, d, v, w, x, y):
    for i in range(count):
        room[i] += v * a[i] + w * b[i] + x * c[i] + y * d[i]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_one(room, count, vector, weight):
    for i in range(count):
        room[i] += weight * vector[i]
