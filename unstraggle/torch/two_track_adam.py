"""TwoTrackAdam: Adam whose first and second moment come from two decodings of the same messages ([C] section V-E)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..doors import door
from ..errors import Invalid

Second = Any
"""The second track: a flat vector over all parameters (tensor or numpy), or one tensor (or None) a parameter."""


@door
class TwoTrackAdam(Optimizer):
    """Adam with m from `p.grad` and v from the square of a second estimate of the same gradient.

    `p.grad` holds the first track, which should be unbiased; `step(second=...)` takes the second, which may trade bias for
    variance (`plan.two_track`). Without `second` both tracks are `p.grad`, and every step is that of `torch.optim.Adam`.

        m = b1 m + (1 - b1) first,   v = b2 v + (1 - b2) second^2,   p -= lr m' / (sqrt(v') + eps)

    with m' = m / (1 - b1^t) and v' = v / (1 - b2^t). Weight decay is added to both tracks, or with
    `decoupled_weight_decay=True` taken from the parameters as in AdamW.

    When not to use it: for `optimally_structured` with the same omega and gamma the scalar second track is c times the first,
    so the step is Adam's times 1 / c. A larger learning rate does the same; see the page on two tracks.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    >>> optimizer = TwoTrackAdam([weight], lr=0.1, eps=0.0)
    >>> weight.grad = torch.tensor([2.0, -4.0])
    >>> optimizer.step(second=torch.tensor([1.0, -8.0]))
    >>> weight.data
    tensor([ 0.8000, -0.9500])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
    ) -> None:
        params = list(params)
        _require(
            "params", params, all(isinstance(one, torch.Tensor | dict | tuple) for one in params), "tensors, or groups of them"
        )
        _require("lr", lr, lr >= 0, "lr >= 0")
        _require("betas", betas, len(betas) == 2 and all(0 <= beta < 1 for beta in betas), "0 <= beta < 1 for both betas")
        _require("eps", eps, eps >= 0, "eps >= 0")
        _require("weight_decay", weight_decay, weight_decay >= 0, "weight_decay >= 0")
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "decoupled": decoupled_weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, second: Second = None) -> Any:
        """One step. second: see `Second`; parameters whose `grad` is None are left alone, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        squares = self._second(second)
        for group in self.param_groups:
            _update(group, [p for p in group["params"] if p.grad is not None], self.state, squares)
        return loss

    def _second(self, second: Second) -> dict[Tensor, Tensor]:
        """The second track of each parameter, checked before anything changes."""
        every = [p for group in self.param_groups for p in group["params"]]
        if second is None:
            return {}
        given = second if isinstance(second, Sequence) else _split(torch.as_tensor(second), every)
        if len(given) != len(every):
            raise Invalid(f"TwoTrackAdam needs second for each of {len(every)} parameters, but got {len(given)}.")
        found = {p: torch.as_tensor(one) for p, one in zip(every, given, strict=True) if one is not None}
        for place, p in enumerate(every):
            if p.grad is not None and (p not in found or found[p].shape != p.shape):
                shape = tuple(found[p].shape) if p in found else None
                raise Invalid(
                    f"TwoTrackAdam needs second of the shape of each parameter with a gradient, but parameter {place} has "
                    f"shape {tuple(p.shape)} and second {shape}. Give one flat vector over all parameters, or a list."
                )
        return {p: one.to(device=p.device, dtype=p.dtype) for p, one in found.items()}


def _split(flat: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector as one tensor per parameter, in order."""
    total = sum(p.numel() for p in params)
    if flat.dim() != 1 or len(flat) != total:
        raise Invalid(f"TwoTrackAdam needs second as a flat vector of {total} coordinates, but got shape {tuple(flat.shape)}.")
    pieces = torch.split(flat, [p.numel() for p in params])
    return [piece.view(p.shape) for piece, p in zip(pieces, params, strict=True)]


def _update(group: dict[str, Any], params: list[Any], state: Any, squares: dict[Tensor, Tensor]) -> None:
    """Adam's recursion on all parameters of a group."""
    (b1, b2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
    for p in params:
        if p.grad.is_sparse or p.is_complex():
            raise Invalid("TwoTrackAdam needs dense real gradients. Use torch.optim.SparseAdam for sparse ones.")
        if not state[p]:
            state[p].update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        kept, one, two = state[p], p.grad, squares.get(p, p.grad)
        if decay and group["decoupled"]:
            p.mul_(1 - lr * decay)
        elif decay:
            one, two = one.add(p, alpha=decay), two.add(p, alpha=decay)
        kept["step"] += 1
        kept["exp_avg"].lerp_(one, 1 - b1)
        kept["exp_avg_sq"].mul_(b2).addcmul_(two, two, value=1 - b2)
        count = float(kept["step"])
        spread = (kept["exp_avg_sq"].sqrt() / (1 - b2**count) ** 0.5).add_(group["eps"])
        p.addcdiv_(kept["exp_avg"], spread, value=-lr / (1 - b1**count))


def _require(name: str, value: Any, holds: bool, rule: str) -> None:
    if not holds:
        raise Invalid(f"TwoTrackAdam needs {rule}, but got {name}={value}.")
