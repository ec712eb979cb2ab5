"""What `check` says of a script, and which of that can't be right."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo_doctor.cli.check_memory import Gpus, Request
from grpo_doctor.cli.checking import check
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.launches import Launch, read
from grpo_doctor.memory import card_bytes
from tests.stock_scripts.scripts import SUPPORTED, Script

_CARD = "H100-80G"
_CARDS = 8
_NEEDS = re.compile(r"needs (\d+) GPUs of")
# Words that only one framework's commands have.
_OWN = {
    "ms-swift": r"NPROC_PER_NODE|\bswift (?:rlhf|rollout)",
    "trl": r"\btrl (?:grpo|vllm-serve)|\baccelerate launch",
    "verl": r"actor_rollout_ref\.|\btrainer\.n|\bdata\.train_batch",
    "openrlhf": r"--actor\.|--vllm\.|--colocate_all_models",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One script's answer. `state` is `read`, `refused` or `crashed`."""

    script: Script
    starts: str
    state: str
    framework: str
    headline: str
    said_no: bool = False
    wrong: tuple[str, ...] = ()
    """Advice of another framework."""


def ask(script: Script) -> Answer:
    """Reads and checks a script on the GPUs that it asks for, at least eight."""
    starts = script.starts
    try:
        launch = read([script.argument], cwd=script.folder, environment={"HOME": "/root"})
        document = check(launch, _request(script, launch))
        if (needed := _NEEDS.search(document.headline)) is not None:
            document = check(launch, _request(script, launch, int(needed[1])))
    except GrpoDoctorError as error:
        return Answer(script, starts, "refused", "", str(error))
    except Exception as error:  # noqa: BLE001 - a crash is what is counted here
        return Answer(script, starts, "crashed", "", repr(error))
    fixes = [fix for flaw in document.flaws for fix in flaw.fixes]
    fixes += [step for step in (str(document.fix or ""),) if step]
    return Answer(
        script,
        starts,
        "read",
        launch.framework,
        document.headline,
        document.verdict in ("oom", "invalid"),
        tuple(dict.fromkeys(_of_another(starts, launch.framework, fixes))),
    )


def _request(script: Script, launch: Launch, gpus: int = 0) -> Request:
    """The GPUs that a script asks for: eight on each host, of 80 GB unless its name says other."""
    cards = max(launch.visible_gpus or _CARDS, launch.processes_per_node)
    card = "H20" if re.search(r"96gb|h20(?!0)", script.name.lower()) else _CARD
    nodes = -(-gpus // cards) if gpus else None
    return Request(gpus=Gpus(cards, card, card_bytes(card)), is_here=False, nodes=nodes)


def _of_another(starts: str, framework: str, fixes: list[str]) -> list[str]:
    if starts and starts not in SUPPORTED:
        words = (*_OWN.values(), r"--\w|\btorchrun\b")
        return [fix for fix in fixes if any(re.search(word, fix) for word in words)]
    if starts and framework in SUPPORTED and starts != framework:
        return [f"read as {framework}"]
    others = [pattern for name, pattern in _OWN.items() if name != framework]
    if framework in ("trl", "unknown", "bundled"):
        others = [pattern for name, pattern in _OWN.items() if name != "trl"]
    return [fix for fix in fixes if any(re.search(pattern, fix) for pattern in others)]
