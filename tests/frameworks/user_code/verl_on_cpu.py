"""verl 0.9.1 without an accelerator: a platform `cpu`, its FSDP engine, and a rollout of its own.

verl imports this in each of its processes: VERL_USE_EXTERNAL_MODULES=verl_on_cpu VERL_PLATFORM=cpu.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from verl.plugin.platform import (  # type: ignore[import-not-found, unused-ignore]
    PlatformBase,
    PlatformRegistry,
)

ROLLOUT = "transformers_on_cpu"
_NOTHING = (
    "synchronize empty_cache set_device ipc_collect manual_seed manual_seed_all "
    "reset_peak_memory_stats set_rng_state"
)
_ZERO = "memory_allocated memory_reserved max_memory_allocated max_memory_reserved current_device"
_MEMORY = 1 << 34


def _device_module() -> Any:
    module = types.ModuleType("cpu_as_device")
    module.__dict__.update({name: lambda *_, **__: None for name in _NOTHING.split()})
    module.__dict__.update({name: lambda *_, **__: 0 for name in _ZERO.split()})
    module.__dict__.update(
        is_available=lambda: True,
        device_count=lambda: 1,
        mem_get_info=lambda *_, **__: (_MEMORY, _MEMORY),
        get_rng_state=lambda *_, **__: torch.get_rng_state(),
        get_device_name=lambda *_, **__: "cpu",
    )
    return module


@PlatformRegistry.register(platform="cpu")  # type: ignore[misc, unused-ignore]
class CpuPlatform(PlatformBase):  # type: ignore[misc, unused-ignore]
    device_name = vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None: ...

    def synchronize(self, device_index: Any = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None: ...


def _one_backend(init: Callable[..., None]) -> Callable[..., None]:
    """verl joins the device's backend with the host's: here both are gloo for the same device."""

    def init_process_group(backend: Any = None, *positional: Any, **keywords: Any) -> None:
        twice = isinstance(backend, str) and backend.count("cpu:gloo") > 1
        init("cpu:gloo" if twice else backend, *positional, **keywords)

    return init_process_group


dist.init_process_group = _one_backend(dist.init_process_group)


def _replica() -> Any:
    import verl_rollout  # type: ignore[import-not-found, unused-ignore]

    return verl_rollout.Replica


def _in_rollouts(module: Any) -> None:
    module._ROLLOUT_REGISTRY[ROLLOUT, "async"] = "verl_rollout.Adapter"


def _in_replicas(module: Any) -> None:
    module.RolloutReplicaRegistry.register(ROLLOUT, _replica)


def _in_engines(module: Any) -> None:
    from verl.workers.engine.base import (  # type: ignore[import-not-found, unused-ignore]
        EngineRegistry,
    )

    for strategy in ("fsdp", "fsdp2"):
        strategies = EngineRegistry._engines["language_model"][strategy]
        strategies["cpu"] = module.FSDPEngineWithLMHead


_ONCE_IMPORTED = {
    "verl.workers.rollout.base": _in_rollouts,
    "verl.workers.rollout.replica": _in_replicas,
    "verl.workers.engine.fsdp.transformer_impl": _in_engines,
}


class _Registers(importlib.abc.MetaPathFinder):
    """Puts ours into verl's registries when the module that has them is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        register = _ONCE_IMPORTED.get(name)
        if register is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            register(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Registers())
