"""Planners: which code for which cluster. Each returns a `Plan`, or a front of them."""

from .base import Plan

__all__ = ["Plan"]
