"""Muon (Jordan et al. 2024), batched over equal shapes, in float32 or bfloat16.

torch.optim.Muon orthogonalises in bfloat16, one matrix at a time: 12 s per step on a CPU without bfloat16 units. In
float32 this version takes 0.4 s for the same 6 M parameters. With bfloat16 units, bfloat16 is faster still.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor, steps: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    """The nearest semi-orthogonal matrices `[n, rows, columns]`, by a quintic Newton-Schulz iteration in `dtype`."""
    a, b, c = QUINTIC
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).to(dtype)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.to(matrices.dtype)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalised; for the matrices inside the layers."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.dtype = dtype

    @torch.no_grad()
    def step(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape[parameter.shape].append(parameter)
            for parameters in by_shape.values():
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict) -> None:
        momentum = group["momentum"]
        directions = []
        for parameter in parameters:
            state = self.state[parameter]
            buffer = state.setdefault("buffer", torch.zeros_like(parameter))
            buffer.lerp_(parameter.grad, 1 - momentum)
            directions.append(parameter.grad + momentum * (buffer - parameter.grad))  # Nesterov
        updates = orthogonalise(torch.stack(directions), dtype=self.dtype)
        # Scaled so that the root mean square of an update matches AdamW's.
        scale = 0.2 * max(parameters[0].shape) ** 0.5
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update, alpha=-group["lr"] * scale)
