"""Codecs: vectors to bytes and to sums. Quantisers are codecs of few bits, with the same bytes for the same seed everywhere."""

from .base import Codec, Unbiased, omega_of
from .bits import of_bits
from .decoding import accumulate, decode
from .error_feedback import ErrorFeedback
from .identity import Identity
from .plain import Plain
from .qsgd import QSGD
from .sign import Sign
from .warmup import warmup
from .wire import Payload, read

__all__ = [
    "QSGD",
    "Codec",
    "ErrorFeedback",
    "Identity",
    "Payload",
    "Plain",
    "Sign",
    "Unbiased",
    "accumulate",
    "decode",
    "of_bits",
    "omega_of",
    "read",
    "warmup",
]
