"""What the server says of itself and its engine."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

_SHAPE = ("vocab_size", "hidden_size", "num_hidden_layers")
VERSION = 2
"""Of the protocol: trainer and server have to speak the same."""


class EngineSnapshot(Struct, frozen=True):
    """The engine at one moment; totals count from its start.

    Attributes:
        running: sequences that are decoded.
        waiting: sequences that wait for room.
        kv_cache: share of the KV cache in use, 0 to 1.
        preemptions: sequences that had to give up their room and start again, in total.
        prefix_queries: prompt tokens looked up in the prefix cache, in total.
        prefix_hits: those found there, in total.
    """

    running: int = 0
    waiting: int = 0
    kv_cache: float = 0.0
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class RolloutStatistics(Struct, frozen=True):
    """The engine during one request, whoever else it worked for meanwhile.

    Attributes:
        running_peak: most sequences decoded at once; and their mean over the steps.
        waiting_peak: most sequences that waited for room; and their mean.
        kv_cache_peak: largest share of the KV cache in use, 0 to 1.
        preemptions: sequences that had to start again for lack of room.
        prefix_queries: prompt tokens looked up in the prefix cache.
        prefix_hits: those found there.
        steps: forward passes of the engine.
    """

    running_peak: int
    running_mean: float
    waiting_peak: int
    waiting_mean: float
    kv_cache_peak: float
    preemptions: int
    prefix_queries: int
    prefix_hits: int
    steps: int


class Folder(Struct, frozen=True):
    """A folder for weights; who reads `token` out of its file `token` shares it with the server."""

    path: str
    token: str


class Health(Struct, frozen=True):
    """What the server is and how it is.

    Attributes:
        status: `starting`, `ready` or `failed`.
        detail: why it failed, or what it is doing.
        pid: its process.
        log: the path of its log file, on its machine.
        model: what it was started with; none: the embedded model.
        shape: facts of the model that have to be the trainer's too, such as `vocab_size`.
        max_model_len: longest prompt and completion together, in tokens.
        dtype: of the weights.
        device: `cuda` or `cpu`.
        workers: processes that hold the weights.
        vllm: vLLM's version.
        folders: where weights can be left as files, best first.
        weights: the version of the weights it has; empty: those it was started with.
    """

    status: str
    detail: str
    pid: int
    log: str
    model: str | None = None
    shape: dict[str, int] = {}
    max_model_len: int = 0
    dtype: str = ""
    device: str = ""
    workers: int = 1
    vllm: str = ""
    folders: list[Folder] = []
    weights: str = ""
    protocol: int = VERSION


def model_shape(config: Any) -> dict[str, int]:
    """Picks the facts of a transformers config that tell models apart.

    Args:
        config: a model's config; of a vision-language model the language model's part counts.
    """
    text = config.get_text_config()
    return {name: int(getattr(text, name)) for name in _SHAPE if hasattr(text, name)}
