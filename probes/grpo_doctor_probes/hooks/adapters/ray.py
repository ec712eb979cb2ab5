"""Ray's actors. No phases: those of an actor are named by the framework that its class is of.

`@ray.remote` puts another object in the place of a class, and sends the class itself to the
actor's process, pickled by value. So it is hooked there, where it arrives: what the sending process
wrapped would have to be unpickled on hosts that may not have this tool.

Workers of a cluster that the job starts inherit its environment. Those of one that ran before
(`ray start`) are given this tool's part of it with the job's runtime environment, by `ray.init` or
by `ray job submit`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from grpo_doctor_probes.hooks.table import Adapter
from grpo_doctor_probes.hooks.wrapping import on_result
from grpo_doctor_probes.record import recorder

_LOADING, _CONNECTING = "ray._private.function_manager", "ray._private.worker"
_SUBMITTING = "ray.dashboard.modules.job.sdk"
_SUBMITTED = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_STARTUP = os.path.join(os.path.dirname(os.path.dirname(__file__)), "startup")  # noqa: PTH118, PTH120


def _hook(actor_class: object, *_: Any, **__: Any) -> None:
    from grpo_doctor_probes.hooks.boot import apply_to_actor  # noqa: PLC0415 - it imports adapters

    if isinstance(actor_class, type):
        apply_to_actor(actor_class)


def _around_init(init: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return init(*args, **_with_environment(args, kwargs))

    return wrapper


def _with_environment(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `ray.init`, with this tool's variables for workers that lack them."""
    try:
        job_environment = kwargs.get("runtime_env")
        address = args[0] if args else kwargs.get("address")
        find = sys.modules["ray._private.services"].canonicalize_bootstrap_address
        if not isinstance(job_environment, (dict, type(None))) or find(address) is None:
            return kwargs
        # What `ray job submit` was given may not be given again: Ray would refuse to start.
        return {**kwargs, "runtime_env": _with_ours(job_environment, _submitted_variables())}
    except Exception:  # noqa: BLE001 - a guest never raises into its host
        recorder.note_error()
        return kwargs


def _around_submit(submit: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            kwargs = {**kwargs, "runtime_env": _with_ours(kwargs.get("runtime_env"), {})}
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            recorder.note_error()
        return submit(*args, **kwargs)

    return wrapper


def _with_ours(job_environment: dict[str, Any] | None, given: dict[str, str]) -> dict[str, Any]:
    """A runtime environment with this tool's variables, but for those that were given before."""
    runtime_env = dict(job_environment or {})
    variables = dict(runtime_env.get("env_vars") or {})
    # Ray puts the worker's own value in the place of ${...}.
    path = variables.get("PYTHONPATH", "${PYTHONPATH}")
    ours = {name: text for name, text in os.environ.items() if name.startswith("GRPO_DOCTOR")}
    ours["PYTHONPATH"] = f"{_STARTUP}{os.pathsep}{path}"
    ours = {name: text for name, text in ours.items() if name not in given}
    return {**runtime_env, "env_vars": {**variables, **ours}}


def _submitted_variables() -> dict[str, str]:
    import json  # noqa: PLC0415 - Ray has imported it

    job = json.loads(os.environ.get(_SUBMITTED) or "{}")
    variables: dict[str, str] = (job.get("runtime_env") or {}).get("env_vars") or {}
    return variables


ADAPTER = Adapter(
    "ray",
    (),
    {
        _LOADING: {
            "FunctionActorManager._load_actor_class_from_gcs": on_result(_hook),
            "FunctionActorManager._load_actor_class_from_local": on_result(_hook),
        },
        _CONNECTING: {"init": _around_init},
        _SUBMITTING: {"JobSubmissionClient.submit_job": _around_submit},
    },
)  # fmt: skip
