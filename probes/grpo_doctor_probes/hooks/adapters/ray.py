"""Ray's actors. No phases: those of an actor are named by the framework that its class is of.

`@ray.remote` puts another object in the place of a class, and sends the class itself to the
actor's process, pickled by value. So it is hooked there, where it arrives: what the sending process
wrapped would have to be unpickled on hosts that may not have this tool.
"""

from __future__ import annotations

from grpo_doctor_probes.hooks.table import Adapter
from grpo_doctor_probes.hooks.wrapping import quietly, replace

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_LOADING = "ray._private.function_manager"


def _patch_loading(module: ModuleType) -> None:
    for name in ("_load_actor_class_from_gcs", "_load_actor_class_from_local"):
        replace(module, f"FunctionActorManager.{name}", _around_load)


def _around_load(load: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        actor_class = load(self, *args, **kwargs)
        quietly(_hook, actor_class)
        return actor_class

    return wrapper


def _hook(actor_class: object) -> None:
    from grpo_doctor_probes.hooks.boot import apply_to_actor  # noqa: PLC0415 - it imports adapters

    if isinstance(actor_class, type):
        apply_to_actor(actor_class)


ADAPTER = Adapter("ray", "ray", (), {_LOADING: _patch_loading})
