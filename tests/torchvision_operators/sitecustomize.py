"""Lets a torchvision that was built for CUDA be imported beside a torch that was not.

The package index has no other build. Its own operators cannot be loaded there, and it declares two
of them without looking; what turns images into numbers is written in torch and works. First in
PYTHONPATH, this has the two declared before torchvision is imported, in vLLM's processes too.
"""

from __future__ import annotations

import sys
from typing import Any

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _Operators:
    library: Any = None

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            make_library: Any = torch.library.Library
            _Operators.library = make_library("torchvision", "DEF")  # until the end
            for operator in ("nms", "qnms"):
                _Operators.library.define(operator + _SIGNATURE)


sys.meta_path.insert(0, _Operators())
