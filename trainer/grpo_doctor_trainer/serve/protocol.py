"""What trainer and server say to each other: JSON over HTTP, checked when it is read.

No pickle, no code, and no path outside the folders that the server itself has made.

======================  ==============================================================
`GET /health`           `Health` (`state.py`); at once, also while the engine starts
`POST /generate`        `GenerateRequest` -> lines of `Event`: progress while the engine
                        makes some, and at the end a result or an error
`POST /weights/files`   `FilesRequest` -> `WeightsTaken`
`POST /weights/join`    `JoinRequest` -> `{}`; the workers join a group of collectives
`POST /weights/receive` `ReceiveRequest` -> `WeightsTaken`; what they then receive over it
`GET /statistics`       `EngineSnapshot` (`state.py`)
======================  ==============================================================

Errors have a status of 400 and above and a body of `Failure`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from grpo_doctor_trainer.serve.state import RolloutStatistics

_T = TypeVar("_T")

MAX_REQUEST_BYTES = 512 * 2**20
"""Largest body of a request: prompts, and images as PNG in base64. Weights go another way."""
JSON_TYPE = "application/json"

Token = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class ProtocolError(ValueError):
    """A message that is not what it should be; says which field."""


class Sampling(Struct, frozen=True, forbid_unknown_fields=True):
    """How to sample; `top_k` -1 and `top_p` 1 are off, `temperature` 0 is greedy.

    `never_tokens` stand for nothing outside a prompt, such as the placeholders of images.
    """

    max_tokens: Count
    temperature: Annotated[float, Meta(ge=0)]
    top_p: Annotated[float, Meta(gt=0, le=1)]
    top_k: Annotated[int, Meta(ge=-1)]
    repetition_penalty: Annotated[float, Meta(gt=0)]
    stop_tokens: tuple[Token, ...]
    never_tokens: tuple[Token, ...] = ()


class Prompt(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One prompt and how many completions of it to make.

    Attributes:
        copies: its completions.
        tokens: the prompt; empty with images.
        text: the prompt with images, one placeholder for each, which the engine widens.
        images: PNG files in base64.
    """

    copies: Count
    tokens: list[Token] = []
    text: str = ""
    images: list[str] = []

    def __post_init__(self) -> None:
        """Refuses a prompt that is neither of the two kinds."""
        if bool(self.tokens) == bool(self.text and self.images):
            raise ValueError("a prompt is either tokens, or text and images")


class GenerateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The prompts of one rank.

    Attributes:
        weights: the version they have to be completed with; the server refuses any other.
        seed: of the first completion, the next has the next; none: the engine's own randomness.
        tell_ended: whether events bring completions as they end.
    """

    weights: str
    prompts: Annotated[list[Prompt], Meta(min_length=1)]
    sampling: Sampling
    seed: int | None = None
    tell_ended: bool = False


class Completion(Struct, frozen=True):
    """One completion.

    Attributes:
        tokens: what was made, with the end token if there is one.
        logprobs: of each token, as sampled.
        prompt_tokens: how many the engine read, those of images included.
    """

    tokens: list[int]
    logprobs: list[float]
    prompt_tokens: int


class Generated(Struct, frozen=True):
    """The completions in the order of the prompts, copies next to each other."""

    completions: list[Completion]
    statistics: RolloutStatistics


class Progress(Struct, frozen=True):
    """How far a request is."""

    finished: int
    running: int
    waiting: int
    kv_cache: float


class Event(Struct, frozen=True, omit_defaults=True):
    """One line of the answer to `/generate`: the last has a result or an error, no other has.

    Attributes:
        progress: about once a second.
        ended: with `tell_ended`, the tokens of completions that have ended since the line before,
            by their number in the order of the result.
    """

    progress: Progress | None = None
    ended: dict[int, list[Token]] = {}
    result: Generated | None = None
    error: str | None = None


class FilesRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Weights as safetensors files, all of them, in one of the server's folders."""

    version: str
    files: Annotated[list[str], Meta(min_length=1)]


class JoinRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of collectives: the trainer is rank 0, the engine's workers come after it.

    Attributes:
        backend: `nccl` between GPUs, else `gloo`.
        host: where rank 0 is reached.
        port: of rank 0's store.
        size: the trainer and the workers.
        timeout_s: until a broadcast that the others do not join is an error.
    """

    backend: str
    host: str
    port: Annotated[int, Meta(ge=1, le=65535)]
    size: Annotated[int, Meta(ge=2)]
    timeout_s: Annotated[float, Meta(gt=0)]


class ReceiveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Weights come over the group that was joined."""

    version: str


class WeightsTaken(Struct, frozen=True):
    """What the engine was given, as it saw it; see `rollout/vllm/weight_checks.py`."""

    signature: str
    tensors: int
    seconds: float


class Failure(Struct, frozen=True):
    """Why a request was refused or failed."""

    error: str


def encode(message: Any) -> bytes:
    """Writes a message as JSON on one line."""
    return msgspec.json.encode(message)


def decode(kind: type[_T], body: bytes) -> _T:
    """Reads a message.

    Raises:
        ProtocolError: it is not JSON, or a field is missing, unknown or of the wrong type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from error
