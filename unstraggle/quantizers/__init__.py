"""Quantisers: vectors to few bits, unbiased, with the same bits for the same seed on every device."""

from .base import Quantizer
from .decoding import accumulate, decode
from .error_feedback import ErrorFeedback
from .identity import Identity
from .qsgd import Qsgd
from .sign import Sign
from .warmup import warmup
from .wire import Payload, read

__all__ = ["ErrorFeedback", "Identity", "Payload", "Qsgd", "Quantizer", "Sign", "accumulate", "decode", "read", "warmup"]
