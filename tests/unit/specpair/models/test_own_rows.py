"""Products that share something between rows are found, and computed for each row alone."""

import pytest
import torch
from torch import Tensor, nn

from specpair.models.own_rows import isolate_rows

WIDTH = 16


class ScaledByAll(nn.Linear):
    """Rounds its input to 8 bits by the largest value of all rows."""

    def forward(self, input: Tensor) -> Tensor:
        scale = input.abs().max() / 127
        return super().forward((input / scale).round() * scale)


class ScaledByRow(nn.Linear):
    """Rounds its input to 8 bits by the largest value of each row."""

    def forward(self, input: Tensor) -> Tensor:
        scale = input.abs().amax(-1, keepdim=True) / 127
        return super().forward((input / scale).round() * scale)


class ModelOf(nn.Module):
    """With one product, in float32 on the CPU."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, product: nn.Module):
        super().__init__()
        self.product = product


@pytest.mark.parametrize(("kind", "count"), [(ScaledByAll, 1), (ScaledByRow, 0), (nn.Linear, 0)])
@torch.inference_mode()
def test_only_shared_rows_are_isolated(kind: type[nn.Linear], count: int) -> None:
    torch.manual_seed(0)
    product = kind(WIDTH, 5)
    assert isolate_rows(ModelOf(product), {"product": WIDTH}) == count
    assert ("forward" in vars(product)) == bool(count)


@torch.inference_mode()
def test_an_isolated_row_is_the_same_bits_alone_and_beside_any_others() -> None:
    torch.manual_seed(0)
    product = ScaledByAll(WIDTH, 5)
    row, loud = torch.randn(1, 1, WIDTH), torch.randn(1, 6, WIDTH) * 1000
    alone, among = product(row), torch.cat([loud, row], 1)
    assert not torch.equal(product(among)[:, -1:], alone)
    isolate_rows(ModelOf(product), {"product": WIDTH})
    assert torch.equal(product(among)[:, -1:], alone)
    assert torch.equal(product(row), alone)
    assert torch.equal(product(among[0])[-1:], alone[0])


@torch.inference_mode()
def test_no_rows_give_no_rows() -> None:
    product = ScaledByAll(WIDTH, 5)
    isolate_rows(ModelOf(product), {"product": WIDTH})
    with pytest.raises(RuntimeError):
        product.__class__.forward(product, torch.empty(1, 0, WIDTH))
    assert product(torch.empty(1, 0, WIDTH)).shape == (1, 0, 5)
