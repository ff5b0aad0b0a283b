"""TorchModule: a PyTorch module, a loss and tensors as a problem, with partial gradients one by one or all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..doors import door
from ..errors import Invalid
from .batches import Draws
from .data import Columns
from .how import How
from .layout import layout_of, trainable
from .problem import TorchProblem
from .replica import own_copy


@door
class TorchModule(TorchProblem):
    """The gradient of the loss summed over the samples of a partition, or over a random batch, scaled up to the partition.

    module: any; its trainable parameters travel as one flat vector, in the module's own order. It is copied, in the mode that
    it is in. loss(outputs, targets): the MEAN over the samples, as torch's losses give. data: (inputs, targets) with a row a
    sample. parts: how many contiguous partitions, or the rows of each. batch: samples per partition and step, None for all of
    it; drawn without replacement by (seed, step, partition), so every worker that holds a partition draws the same. Dropout is
    seeded likewise.

    For masters and studies of one's own; `Coded` trains a model. Batch normalisation in training mode is refused: its
    statistics would depend on who computes what. Use GroupNorm.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> problem = TorchModule(layer, nn.MSELoss(), (torch.eye(2), torch.ones(2, 1)), parts=2)
    >>> (problem.grads(np.zeros(2, dtype=np.float32)) + 0).tolist()
    [[-2.0, 0.0], [0.0, -2.0]]
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        data: tuple[Any, Any],
        parts: int | Sequence[ArrayLike],
        batch: int | None = None,
        seed: int = 0,
    ) -> None:
        self.inputs, self.targets = (torch.as_tensor(part) for part in data)
        self.rows = _partitions(len(self.inputs), len(self.targets), parts)
        if any(layer.training and isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules()):
            raise Invalid("TorchModule refuses batch normalisation in training mode. Use GroupNorm, or module.eval().")
        layout = layout_of(module, order=tuple(trainable(module)), loss=False)
        draws = Draws(tuple(map(len, self.rows)), batch, seed)
        columns = Columns((self.inputs, self.targets), dict(enumerate(self.rows)))
        super().__init__(own_copy(module), loss, columns, layout, draws, How(seed))
        self._mean_of: Callable[[Tensor, Tensor], Tensor] = loss
        first = [layout.flattened(name, p) for name, p in trainable(module).items()]
        self._first = torch.cat(first).cpu().numpy().copy()

    @property
    def samples(self) -> int:
        """Of all partitions: the gradient's sum divided by this is the mean that learning rates are made for."""
        return sum(len(rows) for rows in self.rows)

    def initial(self) -> NDArray[Any]:
        """(dim,) the module's own parameters."""
        return self._first.copy()

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> Any:
        """(dim,) the partial gradient of one partition, or the coordinates `where` of it."""
        return super().grad(np.array(params, dtype=self.dtype), part, where, step)  # a copy: callers may change theirs

    def grads(
        self, params: NDArray[Any], step: int = 0, parts: Sequence[int] | NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """(len(parts), dim) partial gradients of all partitions, or of some, in one batched pass where that is possible."""
        which = list(range(self.k)) if parts is None else np.asarray(parts, dtype=np.int64).tolist()
        batches = [self._rows(step, part) for part in which]
        if not which or self._random or len({len(rows) for rows in batches}) > 1:
            alone = [self.grad(params, part, step=step) for part in which]
            return np.array(alone, dtype=self.dtype).reshape(len(which), self.dim)
        rows = torch.from_numpy(np.stack(batches))
        found = vmap(grad(self._mean), in_dims=(None, 0, 0))(self._tensor(params), self.inputs[rows], self.targets[rows])
        sizes = np.array([len(self.rows[part]) for part in which], dtype=self.dtype)
        return np.asarray(found.numpy() * sizes[:, None])

    def gradient(self, params: NDArray[Any], step: int = 0) -> NDArray[Any]:
        """(dim,) the sum of all partial gradients, computed in one place: what waiting for everyone would give."""
        if self._random or len({len(rows) for rows in self.rows}) > 1:
            return np.asarray(self.grads(params, step).sum(axis=0))
        rows = torch.from_numpy(np.concatenate([self._rows(step, part) for part in range(self.k)]))
        found = grad(self._mean)(self._tensor(params), self.inputs[rows], self.targets[rows])
        return np.asarray(found.numpy() * self.dtype.type(self.samples))

    def mean_loss(self, params: NDArray[Any], inputs: Any = None, targets: Any = None) -> float:
        """The loss on other data, or on all samples of this problem, without dropout."""
        inputs, targets = (self.inputs, self.targets) if inputs is None else (inputs, targets)
        return float(self._mean_of(self.outputs(params, inputs), torch.as_tensor(targets)))

    def outputs(self, params: NDArray[Any], inputs: Any) -> Tensor:
        """What the module says to these inputs, in evaluation mode."""
        modes = {layer: layer.training for layer in self.model.modules()}
        self.model.eval()
        with torch.no_grad():
            outputs: Tensor = functional_call(self.model, self._named(self._tensor(params)), (torch.as_tensor(inputs),))
        for layer, training in modes.items():
            layer.training = training
        return outputs

    @property
    def _random(self) -> bool:
        """Whether the module draws random numbers, which must be seeded partition by partition."""
        return any(layer.training and isinstance(layer, nn.modules.dropout._DropoutNd) for layer in self.model.modules())

    def _rows(self, step: int, part: int) -> NDArray[np.int64]:
        """The rows of the data that a partition uses in a step."""
        return self.rows[part][self.batches.rows(step, part)]

    def _tensor(self, params: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(params, dtype=self.dtype))

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        return {name: self.layout.view(flat, name, p.shape) for name, p in trainable(self.model).items()}

    def _mean(self, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return self._mean_of(functional_call(self.model, self._named(flat), (inputs,)), targets)

    def __getstate__(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("inputs", "targets", "rows", "_first", "_mean_of")}
        return {**super().__getstate__(), **own}


def _partitions(samples: int, targets: int, parts: int | Sequence[ArrayLike]) -> list[NDArray[np.int64]]:
    """The rows of each partition."""
    if isinstance(parts, int):
        if not 1 <= parts <= samples:
            raise Invalid(f"TorchModule needs 1 <= parts <= {samples}, the number of samples, but got parts={parts}.")
        parts = np.array_split(np.arange(samples), parts)
    rows = [np.asarray(part, dtype=np.int64) for part in parts]
    if targets != samples or not rows or any(not len(r) or r.min() < 0 or r.max() >= samples for r in rows):
        raise Invalid(
            f"TorchModule needs partitions of at least one row, each in 0..{samples - 1}, and as many targets as inputs."
        )
    return rows
