"""What an error of a pass means for the process."""

import pytest
import torch

from specpair.caches.out_of_memory import is_out_of_memory
from specpair.engine.failures import DeviceLostError, check_device, is_lost_device

OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried to ..."),
    RuntimeError("std::bad_alloc"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    torch.AcceleratorError("CUDA error: out of memory"),
]
LOST = [
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
    torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
]
OTHERS = [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), IndexError("CUDA error"), AssertionError()]


@pytest.mark.parametrize("error", [*OUT_OF_MEMORY, *LOST, *OTHERS], ids=str)
def test_kinds_of_errors(error: Exception) -> None:
    assert is_out_of_memory(error) == (error in OUT_OF_MEMORY)
    assert is_lost_device(error) == (error in LOST)
    if error in LOST:
        with pytest.raises(DeviceLostError):
            check_device(error)
    else:
        check_device(error)
