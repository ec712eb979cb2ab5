"""OpenRLHF 0.11.2 without a GPU: what it hard-wires to CUDA is reworded while it is imported.

On PYTHONPATH; nothing is imported here. Weights go to vLLM through the rendezvous store.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from typing import Any

_CPU = 'torch.device("cpu")'
_REWORDED = (
    ('torch.device(f"cuda:{torch.cuda.current_device()}")', _CPU),
    ("torch.cuda.current_device()", _CPU),
    ("torch.cuda.current_stream()", "None"),
    ("torch.cuda.synchronize()", "None"),
    ("torch.cuda.empty_cache()", "None"),
    ("torch.cuda.set_device(local_rank)", "None"),
    ('device="cuda"', 'device="cpu"'),
    ('self.ema_beta, "cuda"', 'self.ema_beta, "cpu"'),
    ('"cuda", (dp_size', '"cpu", (dp_size'),
    (
        "from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input",
        "index_first_axis = pad_input = rearrange = unpad_input = None",
    ),
    ("from flash_attn.utils.distributed import all_gather", "all_gather = None"),
    ("from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator", ""),
    ("pynccl = PyNcclCommunicator(pg, device=device)", "pynccl = _ByStore(pg)"),
    (
        "self.model_runner.model.load_weights(weights=[(name, weight)])",
        "_take(self, name, weight, empty_cache)",
    ),
)
_ADDED = {
    "distributed_util.py": '''

class _ByStore:
    """Broadcasts a weight as an object of the rendezvous store."""

    def __init__(self, group):
        self.group = group

    def broadcast(self, weight, src=0, stream=None):
        if self.group.rank == src:
            self.group.broadcast_obj(weight.detach().cpu().float().numpy(), src)
            return
        import torch

        got = self.group.broadcast_obj(None, src)
        weight.copy_(torch.from_numpy(got).to(weight.dtype))
''',
    "vllm_worker_wrap.py": '''

def _take(worker, name, weight, is_last):
    """vLLM's CPU build packs its weights, so that it only takes all of them at once."""
    kept = worker.__dict__.setdefault("_kept_weights", {})
    kept[name] = weight.clone()
    if is_last:
        worker.model_runner.reload_weights(weights_iterator=iter(list(kept.items())))
        kept.clear()
''',
}
_RESOURCES = {"num_gpus": 4, "num_cpus": 16, "include_dashboard": False}


class _Rewords(importlib.machinery.SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        if not path.endswith(".py"):
            return data
        text = data.decode()
        for old, new in _REWORDED:
            text = text.replace(old, new)
        return (text + _ADDED.get(path.rpartition("/")[2], "")).encode()

    def get_code(self, fullname: str) -> Any:
        """Never from a file of byte code, which has the old words."""
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


def _with_resources(module: Any) -> None:
    begin = module.init

    def init(*positional: Any, **keywords: Any) -> Any:
        joins = positional or "address" in keywords or os.environ.get("RAY_ADDRESS")
        if not joins and "RAY_RAYLET_PID" not in os.environ:
            keywords = {**_RESOURCES, **keywords}
        return begin(*positional, **keywords)

    module.init = init


def _without_tiles(module: Any) -> None:
    """vLLM's kernels for AMX end by SIGILL on machines that have it and do not let it be used."""
    module._is_amx_tile_supported = lambda: False


_AFTER = {"ray": _with_resources, "torch.cpu": _without_tiles}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _AFTER and name.partition(".")[0] != "openrlhf":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not (spec.origin or "").endswith(".py"):
            return spec
        if name not in _AFTER:
            assert spec.origin is not None
            spec.loader = _Rewords(name, spec.origin)
            return spec
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _AFTER[name](module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
