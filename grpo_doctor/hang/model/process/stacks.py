"""What a Python stack is doing: the call it is in, what that is for, and the user's own line. Pure.

Functions are known by names and files of torch, the training frameworks, vLLM and the standard
library, and by the words by which people name their own. Rules are tried in order; patterns are
matched case-insensitively (`search`). A file pattern is against the path with forward slashes, so
that it does not matter where a package is installed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from grpo_doctor_probes.evidence import Blocked, Frame, PythonThread

Call = Literal[
    "collective",
    "p2p",
    "store",  # a rendezvous: waiting for a key of the TCPStore
    "lock",
    "file-lock",
    "queue",
    "child",
    "pool",  # a multiprocessing pool or an executor
    "loader",  # a DataLoader's next batch
    "http",
    "poll",
    "asyncio",
    "sleep",
    "gc",
    "",
]
Purpose = Literal[
    "weight-sync", "dataload", "reward", "checkpoint", "compile", "load", "download", "evaluate",
    "generate", "logprob", "train", "optimizer", "offload", "init",
]  # fmt: skip
PHASE_OF: dict[Purpose, str | None] = {
    "weight-sync": "sync", "dataload": "dataload", "reward": "reward", "checkpoint": "checkpoint",
    "compile": None, "load": "init", "download": "init", "evaluate": "eval", "generate": "rollout",
    "logprob": "logprob", "train": "train", "optimizer": "optimizer", "offload": "offload",
    "init": "init",
}  # fmt: skip
# Work that takes minutes in a healthy job and during which nothing is said to the other ranks.
LONG_WORK: frozenset[Purpose] = frozenset(
    {"checkpoint", "compile", "load", "download", "evaluate", "generate", "offload"}
)


# Says nothing of a frame: people name an environment `vllm` or `verl` after what it is for.
_ENVIRONMENT = re.compile(r"^.*/((site|dist)-packages|lib(64)?/python\d[^/]*)(?=/)")


@lru_cache(maxsize=4096)  # forty rules ask, of each frame of each rank
def _within_environment(file: str) -> str:
    return _ENVIRONMENT.sub("", file)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a frame means whose function and file match. `file` None: any file."""

    means: str
    function: re.Pattern[str]
    file: re.Pattern[str] | None = None

    def covers(self, function: str, file: str) -> bool:
        """Return whether a frame of this function and file is meant."""
        if self.file is not None and not self.file.search(_within_environment(file)):
            return False
        # Python 3.11 and later say `Condition.wait`, earlier ones `wait`.
        names = (function, short(function))
        return any(self.function.search(name) is not None for name in names)


def short(function: str) -> str:
    """A function's own name, without its class or the function around it."""
    return function.rpartition(".")[2]


def _rule(means: str, function: str, file: str | None = None) -> Rule:
    where = re.compile(file, re.IGNORECASE) if file else None
    return Rule(means, re.compile(function, re.IGNORECASE), where)


_DISTRIBUTED = r"torch/distributed/"
_CREATES_GROUPS = r"^(init_process_group|new_group|_new_process_group_helper|split_group)$"

# The library call in which a thread is, by its frames inwards of the user's own code.
CALLS: tuple[Rule, ...] = (
    _rule("store", _CREATES_GROUPS, _DISTRIBUTED),
    _rule("store", r"rendezvous|_store_based_barrier|store_barrier|synchronize", r"rendezvous"),
    _rule(
        "p2p", r"^(send|recv|isend|irecv|batch_isend_irecv|(send|recv)_object_list)$", _DISTRIBUTED
    ),
    _rule(
        "collective",
        r"^(all_reduce|all_gather|reduce_scatter|broadcast|reduce|gather|scatter|all_to_all"
        r"|barrier|monitored_barrier)(_\w+)?$",
        _DISTRIBUTED,
    ),
    _rule("collective", r".", r"torch/distributed/(_functional_collectives|nn/functional)"),
    _rule("collective", r"^wait$|^wait_stream$", r"torch/distributed/|deepspeed/comm"),
    _rule("collective", r"^(all_reduce|broadcast|all_gather|send|recv)", r"pynccl"),
    _rule("collective", r".", r"grpo_doctor_probes/(record/)?collectives"),
    _rule("loader", r"_try_get_data|_get_data|_next_data|^__next__$", r"torch/utils/data/"),
    _rule("pool", r".", r"multiprocess\w*/pool|concurrent/futures"),
    _rule("queue", r"^(get|put|recv|recv_bytes|_recv|_recv_bytes)$", r"multiprocess\w*/|queue"),
    _rule("child", r"communicate|_try_wait|^wait$|^_wait$|^poll$|check_output", r"subprocess"),
    _rule("child", r"^(join|wait|poll)$", r"multiprocess\w*/(process|popen)"),
    _rule("asyncio", r".", r"asyncio/"),
    _rule("http", r".", r"/(requests|urllib3|httpx|httpcore|aiohttp)/|http/client|urllib/request"),
    _rule("http", r"^(readinto|recv_into|create_connection)$", r"socket|ssl"),
    _rule("poll", r"^(select|poll)$", r"selectors|/zmq/"),
    _rule("file-lock", r"acquire|lock|wait", r"filelock|portalocker|fasteners|file_baton"),
    _rule("lock", r"^(acquire|__enter__|wait|wait_for|_wait_for_tstate_lock|join)$", r"threading"),
    _rule("sleep", r"^sleep$"),
    _rule("gc", r"^(collect|_collect)$", r"gc"),
)

# Of torch's compiler the files that are on every stack of compiled or exempted code that runs:
# gradient checkpointing is exempted from compilation by a wrapper of its own.
_NOT_RUNNING = (
    r"(?!eval_frame|external_utils|output_code|utils|cudagraph_"
    r"|_aot_autograd/(runtime_wrappers|utils))"
)

# Not a folder that is only called so: `/vllm/train.py` is the user's.
_ENGINES = (
    r"^/(vllm|sglang)/|/sglang/srt/"
    r"|/vllm/(v1|engine|entrypoints|executor|worker|model_executor|distributed|platforms|utils)/"
)
# What the work is for, from the innermost frame outwards.
PURPOSES: tuple[Rule, ...] = (
    _rule(
        "compile",
        r".",
        rf"torch/(_inductor|_dynamo|_functorch)/{_NOT_RUNNING}|/triton/(compiler|backends)/",
    ),
    _rule("compile", r"^(compile|_compile|jit_compile|load_inline)$", r"torch/|triton|cpp_ext"),
    _rule("compile", r"compile|warm_?up|jit_build"),
    _rule("download", r".", r"huggingface_hub/|modelscope/hub/|datasets/(download|load)"),
    _rule("download", r"download|snapshot_download|hf_hub|fetch_(model|dataset)"),
    _rule("train", r"^update_(policy|actor|critic)$"),  # verl's training step
    _rule(
        "weight-sync",
        r"(sync|update|broadcast|push|send|transfer|load)_?(_?\w*_)?(weights?|params?|parameters"
        r"|named_param\w*|policy)|weight_?(sync|update|transfer)|move_model_to_vllm"
        r"|init_communicator|_init_vllm_sync_group|broadcast_to_vllm|refit",
    ),
    _rule("weight-sync", r"^sync$", r"rollout|trainer"),
    _rule("checkpoint", r"save|write_files", r"torch/(serialization|distributed/checkpoint)"),
    _rule("checkpoint", r"save", r"safetensors|transformers/|checkpoint"),
    _rule("checkpoint", r"save_(checkpoint|model|pretrained|state|weights)|checkpoint|dump_state"),
    _rule("load", r"from_pretrained|load_(model|state_dict|checkpoint)|_load_pretrained"),
    _rule("load", r"^load", r"torch/serialization|safetensors"),
    _rule("evaluate", r"^_?(evaluate|evaluation|eval_\w+|run_eval\w*|validate|validation\w*)"),
    _rule("dataload", r".", r"torch/utils/data/|grpo_doctor_trainer/data/|datasets/"),
    _rule(
        "dataload",
        r"(data_?load|load_(batch|data)|next_batch|get_batch|fetch_batch|collate|__getitem__)",
    ),
    _rule("reward", r"reward|score|grade|grader|verif(y|ier)|judge|sandbox|compute_score"),
    _rule("reward", r".", r"/rewards?/[^/]+$|reward[^/]*\.py|(grader|verifier)[^/]*(/[^/]+)?$"),
    _rule("generate", r".", rf"{_ENGINES}|transformers/generation/|grpo_doctor_trainer/rollout"),
    _rule("generate", r"generat|rollout|sample_completions|decode_tokens|_sample$"),
    _rule("logprob", r"log_?prob|logps|per_token_log"),
    _rule("offload", r"offload|wake_up|onload|^sleep_engine$"),
    _rule("optimizer", r"^step$|optimizer_step|clip_grad", r"torch/optim|accelerate|deepspeed"),
    _rule("optimizer", r"optimizer"),
    _rule("train", r"backward|train(ing)?_step|compute_loss|grpo_loss"),
    _rule("init", r"init_process_group|setup_distributed|init_distributed"),
)
LIBRARY = re.compile(
    r"^<(frozen|string|built)|/(site|dist)-packages/|/lib(64)?/python\d|/torch/(distributed|utils)/"
    r"|/grpo_doctor_probes/"
)
# Packages whose own function names say what a step does.
_FRAMEWORK = re.compile(
    r"/(trl|swift|verl|openrlhf|transformers|accelerate|deepspeed|vllm|sglang|open_instruct"
    r"|open_r1|grpo_doctor_trainer)/"
)
# Where torch waits for what it has begun: a backward pass, a stream, a wrapped model.
IN_TORCH = re.compile(r"/torch/(autograd|cuda|distributed|nn/parallel)/|/torch/_tensor\.py$")
# Frames that wrap all others and name no work.
WRAPPERS = frozenset({"wrapper", "decorate_context", "_wrapped", "inner", "__call__", "<module>"})


# Python threads that wake regularly in healthy and stuck processes alike.
_HEARTBEATS = ("tqdmmonitor", "heartbeat", "grpo", "pin_memory", "queuefeeder", "wandb", "asyncio_")
# A library's function called `score` or `compile` says nothing; its file must say it.
_BY_FILE = tuple(rule for rule in PURPOSES if rule.file is not None)
_POOL_CODE = re.compile(r"concurrent/futures/thread|multiprocess\w*/pool|/queue\.py|/threading\.py")
_LOOPS = ("_worker", "worker")  # of an executor's and of a pool's thread
_AWAITS_TASK = (*_LOOPS, "get", "wait")
# Rows of a helper thread that it has not by nature: event loops and idle workers have others.
_TELLING = frozenset(
    {"file", "fifo-open", "pipe-write", "socket-receive", "socket-send", "socket-connect"}
    | {"file-lock", "child"}
)
_JOINS = ("join", "_wait_for_tstate_lock", "_shutdown")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands. `operation` is the library function, such as `all_reduce`.

    `purposes` are innermost first. `user` is the innermost frame that is the user's own, `frames`
    the whole stack, innermost first. All empty for a thread without Python frames.
    """

    call: Call = ""
    operation: str = ""
    purposes: tuple[Purpose, ...] = ()
    user: Frame | None = None
    frames: tuple[Frame, ...] = ()

    @property
    def purpose(self) -> Purpose | None:
        """What the work is for; the innermost where several are nested."""
        return self.purposes[0] if self.purposes else None

    @property
    def phase(self) -> str | None:
        """The phase of `grpo_doctor.phases`, None where the stack does not show it."""
        phases = (PHASE_OF[purpose] for purpose in self.purposes)
        return next((phase for phase in phases if phase is not None), None)

    @property
    def long_work(self) -> Purpose | None:
        """Work that may take minutes in a healthy job, if the stack is in any.

        A function that generates and scores is in its rewards while it scores.
        """
        for inner, purpose in enumerate(self.purposes):
            scoring = purpose == "generate" and not LONG_WORK.issuperset(self.purposes[:inner])
            if purpose in LONG_WORK and not scoring:
                return purpose
        return None

    @property
    def communicates(self) -> bool:
        """Return whether it is in a call that needs other ranks."""
        return self.call in ("collective", "p2p", "store")

    def text(self) -> str:
        """`all_reduce, train.py:31 in step`."""
        inner = self.frames[0] if self.frames else None
        frame = self.user or inner
        if frame is None:
            return ""
        line = f"{frame.file.rpartition('/')[2]}:{frame.line} in {frame.function}"
        return f"{self.operation}, {line}" if self.operation else line


def is_library(frame: Frame) -> bool:
    """Whether a frame is of an installed package or the standard library, not of the user."""
    return LIBRARY.search(frame.file) is not None


def is_of_framework(file: str) -> bool:
    """Whether a file is of a framework for training or an engine, wherever it is installed."""
    return _FRAMEWORK.search(_within_environment(file)) is not None


def place_of(thread: PythonThread | None) -> Place:
    """Reads a thread's stack."""
    if thread is None or not thread.frames:
        return Place()
    frames = thread.frames
    edge = next((i for i, frame in enumerate(frames) if not is_library(frame)), len(frames))
    call, operation = _call(frames[:edge])
    user = frames[edge] if edge < len(frames) else None
    if not call and user is not None and "torch/distributed" in frames[0].file:
        call, operation = _call(frames[:6])  # a source checkout of torch has another path
    return Place(call, operation, _purposes(frames), user, frames)


def _call(inner: Sequence[Frame]) -> tuple[Call, str]:
    """The call that the user's code made: of all frames that match, the outermost of its rule.

    The outermost, because `barrier` calls `wait` and `all_gather_object` calls `all_gather`.
    """
    for rule in CALLS:
        hits = [short(frame.function) for frame in inner if rule.covers(frame.function, frame.file)]
        names = [name for name in hits if name not in WRAPPERS]
        if names:
            return cast("Call", rule.means), names[-1]
    return "", ""


def _purposes(frames: Sequence[Frame]) -> tuple[Purpose, ...]:
    purposes: dict[Purpose, None] = {}
    for frame in frames:
        is_named = not is_library(frame) or is_of_framework(frame.file)
        rules = PURPOSES if is_named else _BY_FILE
        rule = next((rule for rule in rules if rule.covers(frame.function, frame.file)), None)
        if rule is not None:
            purposes.setdefault(cast("Purpose", rule.means))
    return tuple(
        purpose for purpose in purposes if purpose != "evaluate" or purpose == list(purposes)[-1]
    )


def is_heartbeat(thread_name: str) -> bool:
    """Return whether a thread of this name wakes by a clock, so that its moves say nothing."""
    return thread_name.lower().startswith(_HEARTBEATS)


def works_for_pool(thread: PythonThread) -> bool:
    """Return whether it is a pool's thread in the midst of a task."""
    loop = next((i for i, frame in enumerate(thread.frames) if _is_of_pool(frame, _LOOPS)), None)
    if loop is None:
        return False
    # A task may wait too, as the loop does without one: then other code lies between.
    task = thread.frames[:loop]
    return any(not _is_of_pool(frame, _AWAITS_TASK) for frame in task)


def _is_of_pool(frame: Frame, functions: Sequence[str]) -> bool:
    return _POOL_CODE.search(frame.file) is not None and short(frame.function) in functions


def awaited(
    place: Place, threads: Sequence[PythonThread], rows: Sequence[Blocked] = ()
) -> PythonThread | None:
    """Return the thread that a main thread at `place` waits for, if it is known.

    Of a pool any thread with a task, one that is blocked before others. A `join` means the only
    thread that runs the user's code; so may a queue, an event or a lock, but only one whose code
    says which part of a step it is, or one that is blocked: a logger's thread is in user code as
    well.
    """
    blocked = {row.tid for row in rows if row.kind in _TELLING}
    at_work = [thread for thread in threads if works_for_pool(thread)]
    if place.call in ("pool", "asyncio"):
        return min(at_work, key=lambda t: (t.tid not in blocked, t.tid), default=None)
    if place.call not in ("lock", "queue"):
        return None
    stuck = [thread for thread in threads if thread.tid in blocked]
    if len(stuck) == 1:
        return stuck[0]
    own = [t for t in threads if place_of(t).user is not None and not is_heartbeat(t.name)]
    if place.operation not in _JOINS:
        own = [thread for thread in own if place_of(thread).phase is not None]
    return own[0] if len(own) == 1 else None
