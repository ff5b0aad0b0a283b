"""Any PyTorch module and loss as a problem: partial gradients of k partitions of a data set, one or all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..errors import Invalid

Floats = NDArray[np.float32]
Loss = Callable[[Tensor, Tensor], Tensor]

REMEMBERED = 1 << 17
"""Batches whose rows are kept: several runs on the same seed then draw them once."""


class TorchModule:
    """The gradient of the loss summed over the samples of a partition, or over a random batch, scaled up to the partition.

    module: any; parameters travel as one flat float32 vector, in the order of `module.parameters()`. loss(outputs, targets):
    the MEAN over the samples, as torch's losses give. data: (inputs, targets) with a row a sample. parts: how many contiguous
    partitions, or the rows of each. batch: samples a partition and step, None for all of it; drawn without replacement by
    (seed, step, partition), so every worker that holds a partition draws the same. Dropout is seeded likewise.

    Batch normalisation in training mode is refused: its statistics would depend on who computes what. Use GroupNorm.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> problem = TorchModule(layer, nn.MSELoss(), (torch.eye(2), torch.ones(2, 1)), parts=2)
    >>> (problem.grads(np.zeros(2, dtype=np.float32)) + 0).tolist()
    [[-2.0, 0.0], [0.0, -2.0]]
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss,
        data: tuple[Any, Any],
        parts: int | Sequence[ArrayLike],
        batch: int | None = None,
        seed: int = 0,
    ) -> None:
        self.module, self.loss, self.batch, self.seed = module, loss, batch, seed
        self.inputs, self.targets = (torch.as_tensor(part) for part in data)
        self.rows = _partitions(len(self.inputs), parts)
        self.shapes = [(name, p.shape, p.numel()) for name, p in module.named_parameters()]
        self._batches: dict[tuple[int, int], NDArray[np.int64]] = {}
        _check(self)

    @property
    def k(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        return sum(size for *_, size in self.shapes)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def samples(self) -> int:
        """Of all partitions: the gradient's sum divided by this is the mean that learning rates are made for."""
        return sum(len(rows) for rows in self.rows)

    def initial(self) -> Floats:
        """(dim,) the module's own parameters."""
        flat = torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])
        return np.array(flat.numpy(), dtype=np.float32)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> Floats:
        """(dim,) the partial gradient of one partition, or the coordinates `where` of it."""
        rows = self._batch(step, part)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(hash((self.seed, step, part)) % 2**62)
            found = grad(self._mean_loss)(_tensor(params), self.inputs[rows], self.targets[rows])
        return np.asarray(found.numpy()[where] * np.float32(len(self.rows[part])))

    def grads(self, params: NDArray[Any], step: int = 0, parts: Sequence[int] | NDArray[np.int64] | None = None) -> Floats:
        """(len(parts), dim) partial gradients of all partitions, or of some, in one batched pass where that is possible."""
        which = np.arange(self.k) if parts is None else np.asarray(parts)
        batches = [self._batch(step, part) for part in which.tolist()]
        if not len(which) or self._random or len({len(rows) for rows in batches}) > 1:
            alone = [self.grad(params, part, step=step) for part in which.tolist()]
            return np.array(alone, dtype=np.float32).reshape(len(which), self.dim)
        rows = torch.from_numpy(np.stack(batches))
        found = vmap(grad(self._mean_loss), in_dims=(None, 0, 0))(_tensor(params), self.inputs[rows], self.targets[rows])
        sizes = np.array([len(self.rows[part]) for part in which.tolist()], dtype=np.float32)
        return np.asarray(found.numpy() * sizes[:, None])

    def gradient(self, params: NDArray[Any], step: int = 0) -> Floats:
        """(dim,) the sum of all partial gradients, computed in one place: what waiting for everyone would give."""
        if self._random or len({len(rows) for rows in self.rows}) > 1:
            return np.asarray(self.grads(params, step).sum(axis=0))
        rows = torch.from_numpy(np.concatenate([self._batch(step, part) for part in range(self.k)]))
        found = grad(self._mean_loss)(_tensor(params), self.inputs[rows], self.targets[rows])
        return np.asarray(found.numpy() * np.float32(self.samples))

    def mean_loss(self, params: NDArray[Any], inputs: Any = None, targets: Any = None) -> float:
        """The loss on other data, or on all samples of this problem, without dropout."""
        inputs, targets = (self.inputs, self.targets) if inputs is None else (inputs, targets)
        return float(self.loss(self.outputs(params, inputs), torch.as_tensor(targets)))

    def outputs(self, params: NDArray[Any], inputs: Any) -> Tensor:
        """What the module says to these inputs, in evaluation mode."""
        training = self.module.training
        self.module.eval()
        with torch.no_grad():
            outputs: Tensor = functional_call(self.module, self._named(_tensor(params)), (torch.as_tensor(inputs),))
        self.module.train(training)
        return outputs

    @property
    def _random(self) -> bool:
        """Whether the module draws random numbers, which must be seeded partition by partition."""
        return any(layer.training and isinstance(layer, nn.modules.dropout._DropoutNd) for layer in self.module.modules())

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        pieces = torch.split(flat, [size for *_, size in self.shapes])
        return {name: piece.view(shape) for piece, (name, shape, _) in zip(pieces, self.shapes, strict=True)}

    def _mean_loss(self, flat: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(functional_call(self.module, self._named(flat), (inputs,)), targets)

    def _batch(self, step: int, part: int) -> NDArray[np.int64]:
        """The rows of the data that a partition uses in a step."""
        rows = self.rows[part]
        if self.batch is None:
            return rows
        if (step, part) not in self._batches:
            if len(self._batches) >= REMEMBERED:
                self._batches.clear()
            drawn = np.random.default_rng((self.seed, step, part)).choice(len(rows), self.batch, replace=False)
            self._batches[step, part] = rows[drawn]
        return self._batches[step, part]


def _tensor(params: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(params, dtype=np.float32))


def _partitions(samples: int, parts: int | Sequence[ArrayLike]) -> list[NDArray[np.int64]]:
    """The rows of each partition."""
    if isinstance(parts, int):
        if not 1 <= parts <= samples:
            raise Invalid(f"TorchModule needs 1 <= parts <= {samples}, the number of samples, but got parts={parts}.")
        return [np.asarray(rows) for rows in np.array_split(np.arange(samples), parts)]
    return [np.asarray(rows, dtype=np.int64) for rows in parts]


def _check(problem: TorchModule) -> None:
    smallest, samples = min(map(len, problem.rows)), len(problem.inputs)
    if smallest < 1 or len(problem.targets) != samples or any(r.min() < 0 or r.max() >= samples for r in problem.rows):
        raise Invalid(
            f"TorchModule needs partitions of at least one row, each in 0..{samples - 1}, and as many targets as inputs."
        )
    if problem.batch is not None and not 1 <= problem.batch <= smallest:
        raise Invalid(
            f"TorchModule needs 1 <= batch <= {smallest}, the smallest partition, but got batch={problem.batch}. "
            "Use batch=None for whole partitions, or fewer of them."
        )
    if any(layer.training and isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in problem.module.modules()):
        raise Invalid("TorchModule refuses batch normalisation in training mode. Use GroupNorm, or module.eval().")
    if any(p.dtype != torch.float32 for p in problem.module.parameters()):
        raise Invalid("TorchModule needs float32 parameters. Call module.float().")
