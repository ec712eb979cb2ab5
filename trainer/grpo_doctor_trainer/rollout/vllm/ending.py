"""Ends an engine of this process, so that another can start in it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def end_engine(vllm: Any) -> None:
    """Ends a `LLMEngine`: its weights, its KV cache and its process groups; with all its ranks.

    The ranks' own process group stays. It was there before the engine, and the trainer still needs
    it; vLLM 0.32 would destroy it with its own.
    """
    from vllm.distributed import parallel_state  # noqa: PLC0415 - there is an engine

    with _sparing_the_ranks(parallel_state):
        vllm.engine_core.shutdown()
        # Earlier versions leave this to who started the engine; a second time it does nothing.
        parallel_state.cleanup_dist_env_and_memory()


@contextmanager
def _sparing_the_ranks(parallel_state: Any) -> Iterator[None]:
    names = vars(parallel_state)
    whole = names["destroy_distributed_environment"]

    def destroy_own_group() -> None:
        if names.get("_WORLD") is not None:
            names["_WORLD"].destroy()
        names["_WORLD"] = names["_NODE_COUNT"] = None

    names["destroy_distributed_environment"] = destroy_own_group
    try:
        yield
    finally:
        names["destroy_distributed_environment"] = whole
