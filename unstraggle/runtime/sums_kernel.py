"""The kernels of `sums`: loaded only for long vectors.

Each makes one pass: weights, the sum so far, a factor for all, and whether a number comes out that is none; the OR of single
answers, unlike a sum, is quick without leave to change the order of additions.
"""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from numba import njit


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_four(room, a, b, c, d, v, w, x, y):
    """room += v a + w b + x c + y d."""
    for i in range(len(room)):
        room[i] += v * a[i] + w * b[i] + x * c[i] + y * d[i]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_one(room, a, w):
    """room += w a."""
    for i in range(len(room)):
        room[i] += w * a[i]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def settle_room(out, limit, factor, room):
    """out = factor room; whether a number is beyond the limit, or none."""
    bad = False
    for i in range(len(out)):
        out[i] = factor * room[i]
        bad |= not abs(out[i]) <= limit
    return bad


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def blend_one(out, fresh, limit, factor, a, v):
    """out = factor (v a), plus out before if not fresh; whether a number is beyond the limit, or none."""
    bad = False
    if fresh:
        for i in range(len(out)):
            out[i] = factor * (v * a[i])
            bad |= not abs(out[i]) <= limit
    else:
        for i in range(len(out)):
            out[i] = factor * (out[i] + v * a[i])
            bad |= not abs(out[i]) <= limit
    return bad


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def blend_two(out, fresh, limit, factor, a, b, v, w):
    """The same of two vectors."""
    bad = False
    if fresh:
        for i in range(len(out)):
            out[i] = factor * (v * a[i] + w * b[i])
            bad |= not abs(out[i]) <= limit
    else:
        for i in range(len(out)):
            out[i] = factor * (out[i] + v * a[i] + w * b[i])
            bad |= not abs(out[i]) <= limit
    return bad


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def blend_three(out, fresh, limit, factor, a, b, c, v, w, x):
    """The same of three."""
    bad = False
    if fresh:
        for i in range(len(out)):
            out[i] = factor * (v * a[i] + w * b[i] + x * c[i])
            bad |= not abs(out[i]) <= limit
    else:
        for i in range(len(out)):
            out[i] = factor * (out[i] + v * a[i] + w * b[i] + x * c[i])
            bad |= not abs(out[i]) <= limit
    return bad


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def blend_four(out, fresh, limit, factor, a, b, c, d, v, w, x, y):
    """The same of four."""
    bad = False
    if fresh:
        for i in range(len(out)):
            out[i] = factor * (v * a[i] + w * b[i] + x * c[i] + y * d[i])
            bad |= not abs(out[i]) <= limit
    else:
        for i in range(len(out)):
            out[i] = factor * (out[i] + v * a[i] + w * b[i] + x * c[i] + y * d[i])
            bad |= not abs(out[i]) <= limit
    return bad


BLENDS = (blend_one, blend_two, blend_three, blend_four)
