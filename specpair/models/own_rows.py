"""Keeps each row's result its own in quantised models.

Some formats take one scale for all rows of a product, or treat a column of every row by the largest value in it. Then
the logits of a token would depend on the tokens that are proposed after it and on other requests. Such products are
found by trial when a model is loaded, and computed for one row at a time, as in decoding without company.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn

from specpair.models.fusible import is_plain_linear

COMPANY = 7
"""Rows beside the one that is looked at."""
LOUDER = 100.0
"""Times that the company's values grow, which may not change the row."""


def isolate_rows(model: nn.Module, widths: dict[str, int]) -> int:
    """Computes the products that share something between rows for one row at a time; returns how many they are.

    `widths` has the input width of each product by its name in the model. Ordinary products are left alone.
    """
    modules = {name: model.get_submodule(name) for name in widths}
    shared = [
        module
        for name, module in modules.items()
        if not is_plain_linear(module) and shares_rows(module, widths[name], cast(Any, model))
    ]
    for module in shared:
        compute_rows_alone(module)
    return len(shared)


@torch.inference_mode()
def shares_rows(module: nn.Module, width: int, like: Any) -> bool:
    """Whether a row of the product changes by a single bit with the values of other rows, the shape being the same.

    `like` has the device and dtype of the inputs.
    """
    quiet = torch.randn(1, 1 + COMPANY, width, generator=torch.Generator().manual_seed(0))
    loud = quiet.clone()
    loud[:, 1:] *= LOUDER
    beside_quiet, beside_loud = (module(rows.to(like.device, like.dtype))[0, 0] for rows in (quiet, loud))
    return not torch.equal(beside_quiet, beside_loud)


def compute_rows_alone(module: Any) -> None:
    """Replaces the module's `forward` by one that sees a single row at a time."""
    together = module.forward

    def alone(x: Tensor) -> Tensor:
        rows = x.reshape(-1, 1, 1, x.size(-1))
        if len(rows) == 0:
            return together(x.new_zeros(1, 1, x.size(-1)))[0, :0].expand(*x.shape[:-1], -1)
        return torch.cat([together(row) for row in rows]).view(*x.shape[:-1], -1)

    module.forward = alone
