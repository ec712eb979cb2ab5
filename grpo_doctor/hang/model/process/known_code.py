"""Functions by which a stack shows what it does: names and files of torch, the training frameworks,
vLLM and the standard library, and the words by which people name their own.

Rules are tried in order; patterns are matched case-insensitively (`search`). A file pattern is
against the path with forward slashes, so that it does not matter where a package is installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

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
    "weight-sync",
    "dataload",
    "reward",
    "checkpoint",
    "compile",
    "load",
    "download",
    "evaluate",
    "generate",
    "logprob",
    "train",
    "optimizer",
    "offload",
    "init",
]
PHASE_OF: dict[Purpose, str | None] = {
    "weight-sync": "sync",
    "dataload": "dataload",
    "reward": "reward",
    "checkpoint": "checkpoint",
    "compile": None,
    "load": "init",
    "download": "init",
    "evaluate": "eval",
    "generate": "rollout",
    "logprob": "logprob",
    "train": "train",
    "optimizer": "optimizer",
    "offload": "offload",
    "init": "init",
}
# Work that takes minutes in a healthy job and during which nothing is said to the other ranks.
LONG_WORK: frozenset[Purpose] = frozenset(
    {"checkpoint", "compile", "load", "download", "evaluate", "generate", "offload"}
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a frame means whose function and file match. `file` None: any file."""

    means: str
    function: re.Pattern[str]
    file: re.Pattern[str] | None = None

    def covers(self, function: str, file: str) -> bool:
        """Whether a frame of this function and file is meant."""
        if self.file is not None and not self.file.search(file):
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
    _rule("collective", r".", r"grpo_doctor_probes/collectives"),
    _rule("loader", r"_try_get_data|_get_data|_next_data|^__next__$", r"torch/utils/data/"),
    _rule("pool", r".", r"multiprocessing/pool|concurrent/futures"),
    _rule("queue", r"^(get|put|recv|recv_bytes|_recv|_recv_bytes)$", r"multiprocessing/|queue"),
    _rule("child", r"communicate|_try_wait|^wait$|^_wait$|^poll$|check_output", r"subprocess"),
    _rule("child", r"^(join|wait|poll)$", r"multiprocessing/(process|popen)"),
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
    _rule("reward", r".", r"/rewards?/|reward[^/]*\.py|grader|verifier"),
    _rule(
        "generate", r".", r"/vllm/|/sglang/|transformers/generation/|grpo_doctor_trainer/rollout"
    ),
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
FRAMEWORK = re.compile(
    r"/(trl|swift|verl|openrlhf|transformers|accelerate|deepspeed|vllm|sglang|open_instruct"
    r"|open_r1|grpo_doctor_trainer)/"
)
# Where torch waits for what it has begun: a backward pass, a stream, a wrapped model.
IN_TORCH = re.compile(r"/torch/(autograd|cuda|distributed|nn/parallel)/|/torch/_tensor\.py$")
# Frames that wrap all others and name no work.
WRAPPERS = frozenset({"wrapper", "decorate_context", "_wrapped", "inner", "__call__", "<module>"})
