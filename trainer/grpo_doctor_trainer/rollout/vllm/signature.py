"""A signature of weights: both ends compute it, and it says whether one got what the other sent.

For each tensor the bits of all elements are added up as whole numbers, on the device where the
tensor is; a checksum over names, shapes, dtypes and sums does not depend on the order of tensors.
It finds lost, stale, cut or damaged weights. It is no protection against somebody who wants to
deceive.
"""

from __future__ import annotations

import hashlib

import torch

_WHOLE_NUMBERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Signature:
    """Grows tensor by tensor."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def tensors(self) -> int:
        """Counts the tensors so far."""
        return len(self._lines)

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Takes in one tensor of any dtype."""
        bits = tensor.detach().contiguous().view(_WHOLE_NUMBERS[tensor.element_size()])
        shape = "x".join(map(str, tensor.shape))
        dtype = str(tensor.dtype).removeprefix("torch.")
        # Whole numbers wrap around in any order of addition, where floats would round.
        self._lines.append(f"{name} {dtype} {shape} {int(bits.sum(dtype=torch.int64))}")

    def value(self) -> str:
        """Gives the signature of all tensors so far, 32 hexadecimal digits."""
        joined = "\n".join(sorted(self._lines)).encode()
        return hashlib.blake2b(joined, digest_size=16).hexdigest()
