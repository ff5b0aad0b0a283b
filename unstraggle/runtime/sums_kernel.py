"""The kernels of `sums`: loaded only for long vectors."""

# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from numba import njit


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_four(room, a, b, c, d, v, w, x, y):
    """room += v a + w b + x c + y d."""
    for i in range(len(room)):
        room[i] += v * a[i] + w * b[i] + x * c[i] + y * d[i]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def set_four(room, a, b, c, d, v, w, x, y):
    """room = v a + w b + x c + y d."""
    for i in range(len(room)):
        room[i] = v * a[i] + w * b[i] + x * c[i] + y * d[i]


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def add_one(room, a, w):
    """room += w a."""
    for i in range(len(room)):
        room[i] += w * a[i]
