"""Passes: forward passes of a worker's model, and what is refused of their losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import Invalid, UnstraggleError
from .how import How, one_line, where
from .outcome import Outcome, outcome_of
from .replica import Replica


class Passes:
    """What the model says of batches. Losses on an accelerator are looked at when a task is done: looking stops it."""

    def __init__(self, replica: Replica, how: How, worker: int | None) -> None:
        self.replica, self.how, self.worker = replica, how, worker
        self._unseen: list[tuple[int, int, Tensor]] = []

    def forward(self, part: int, batch: Any, step: int, context: dict[str, Any]) -> Outcome:
        """The loss of a batch, which is one number, and what else is added up."""
        self.replica.reset()
        try:
            found = self._found(batch, context)
            if self.how.still:
                self._require_still(part, step)
            if self.how.strict:
                self._require_declared(found, part, step)
        except UnstraggleError:
            raise
        except Exception as error:
            raise UnstraggleError(
                f"{where(self.worker, part, step)}: the forward pass or the loss failed: {type(error).__name__}: "
                f"{one_line(error)}"
            ) from error
        return replace(found, loss=self._checked(found.loss, part, step))

    def _found(self, batch: Any, context: dict[str, Any]) -> Outcome:
        with torch.autocast(self.replica.device.type, self.how.autocast, enabled=self.how.autocast is not None):
            told = (context,) if self.how.told else ()
            return outcome_of(self.replica.loss_fn, self.how.forward(self.replica.model, batch, *told), self.how.split)

    def begin(self) -> None:
        """A task begins: losses of one that was left do not count."""
        self._unseen.clear()

    def look_at_losses(self) -> None:
        """Wait until the device is done with a task, and look at its losses."""
        unseen, self._unseen = self._unseen, []
        if not unseen:
            self.replica.wait()
        elif not torch.stack([loss for _, _, loss in unseen]).cpu().isfinite().all():  # the one wait: all else was before it
            for one in unseen:
                self._require_finite(*one)

    def _checked(self, loss: Any, part: int, step: int) -> Tensor:
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise Invalid(
                f"{where(self.worker, part, step)}: the loss must be one number, but has shape {shape}. "
                'Use reduction="mean" or "sum".'
            )
        if self.replica.device.type == "cuda" and torch.is_grad_enabled():
            self._unseen.append((part, step, loss.detach().reshape(())))  # looking now would keep the device waiting
        else:
            self._require_finite(part, step, loss)
        return loss.reshape(()).to(self.replica.flat.dtype)

    def _require_still(self, part: int, step: int) -> None:
        """Refuse a forward pass that moves a buffer which does not travel: it would be lost."""
        moved = self.replica.lost(touched=True)
        if moved:
            raise Invalid(
                f"{where(self.worker, part, step)}: the forward pass moves the buffer {moved[0].name}, and workers forget "
                'that. With check=True such buffers are found and travel with the gradient; statistics="discard" leaves them '
                "as they are."
            )

    def _require_declared(self, found: Outcome, part: int, step: int) -> None:
        """Refuse what has no place in the vector that travels."""
        layout = self.replica.layout
        if (found.denominator is not None) != self.how.ratio:
            raise Invalid(
                f"{where(self.worker, part, step)}: the loss is (sum, denominator) in some steps only, or that was not seen "
                'before the start. Always give both, with check=True or reduction="ratio".'
            )
        new = found.metrics.keys() - set(layout.metrics)
        if new and layout.loss:
            raise Invalid(
                f"{where(self.worker, part, step)}: the metric {sorted(new)[0]} was not seen before the start. Give all "
                "metrics always, with check=True."
            )

    def _require_finite(self, part: int, step: int, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            raise Invalid(
                f"{where(self.worker, part, step)}: the loss is {float(loss.detach())}. Lower the learning rate, clip "
                "gradients, or look at the samples of this partition."
            )
