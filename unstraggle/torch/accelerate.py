"""accelerated: Coded for a loop with an Accelerator. Needs `pip install 'unstraggle[accelerate]'`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from ..doors import door
from ..errors import Invalid
from .coded import Coded


@door
def accelerated(
    accelerator: Accelerator, model: nn.Module, loss_fn: Callable[[Any, Any], Tensor], dataset: Any, **options: Any
) -> Coded:
    """A `Coded` whose `backward()` stands for `accelerator.backward(loss)`, and which `save_state` and `load_state` include.

    model: as `accelerator.prepare` gave it back, so that gradients are those of the parameters that the optimiser has.
    options: those of `Coded`.
    """
    if not isinstance(accelerator, Accelerator):
        raise Invalid(f"accelerated needs an accelerate.Accelerator first, but got {type(accelerator).__name__}.")
    every = accelerator.gradient_accumulation_steps
    for bad, words in (
        (
            accelerator.num_processes > 1 or accelerator.distributed_type != DistributedType.NO,
            f"one process, but got num_processes={accelerator.num_processes} ({accelerator.distributed_type.value}): it is the "
            "master, and starts the workers itself. Run the script with plain python, and give scheme= or workers=",
        ),
        (every != 1, f"gradient_accumulation_steps=1, but got {every}. Use batch_size= {every} times as large"),
        (
            accelerator.mixed_precision != "no",
            f'mixed_precision="no", but got "{accelerator.mixed_precision}". Use autocast=torch.bfloat16 for the workers',
        ),
    ):
        if bad:
            raise Invalid(f"accelerated needs {words}.")
    run = Coded(accelerator.unwrap_model(model, keep_torch_compile=False), loss_fn, dataset, **options)
    accelerator.register_for_checkpointing(run)
    return run
