"""Quantisers: vectors to few bits, unbiased, with the same bits for the same seed on every device."""

from .base import Quantizer
from .bits import of_bits
from .decoding import accumulate, decode
from .error_feedback import ErrorFeedback
from .identity import Identity
from .qsgd import QSGD
from .sign import Sign
from .warmup import warmup
from .wire import Payload, read

__all__ = [
    "QSGD",
    "ErrorFeedback",
    "Identity",
    "Payload",
    "Quantizer",
    "Sign",
    "accumulate",
    "decode",
    "of_bits",
    "read",
    "warmup",
]
