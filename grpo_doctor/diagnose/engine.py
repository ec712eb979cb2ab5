"""From text to an answer: what it is, what it shows, the cause where that follows."""

from __future__ import annotations

import re

from grpo_doctor.diagnose import stacks
from grpo_doctor.diagnose.model import Answer, Finding
from grpo_doctor.diagnose.signatures import matches
from grpo_doctor.diagnose.watchdog import watchdog_finding

SCHEMA = 1
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|\r(?!\n)")
_FRAMEWORKS = (
    ("ms-swift", r"\bswift (?:rlhf|rollout|sft)|\[INFO:swift|/swift/|\bms-swift"),
    ("openrlhf", r"openrlhf", ),
    ("verl", r"\bverl\b|actor_rollout_ref|WorkerDict|/verl/"),
    ("trl", r"\btrl\b|GRPOConfig|GRPOTrainer|grpo_trainer\.py"),
)  # fmt: skip
_KINDS = (
    ("NCCL watchdog text", r"Watchdog caught collective operation timeout"),
    ("NCCL log", r"NCCL (?:INFO|WARN)"),
    ("py-spy dump", r"^Process \d+: .*\n(?:Python v|\n|Thread)"),
    ("faulthandler stacks", r"^(?:Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\)"),
    ("nvidia-smi", r"NVIDIA-SMI \d|Unable to determine the device handle"),
    ("kernel log", r"NVRM: Xid|oom-kill|Out of memory: Killed process|pcieport "),
    ("metric rows", r"\{'loss': |step:\d+ - |Global step \d+: \{"),
    ("Ray status", r"ray::|\(\w+ pid=\d+|ray\.exceptions|Resources\n-{5,}"),
    ("launch", r"torchrun|accelerate launch|swift rlhf|python3? -m verl|deepspeed --|trl grpo"),
)
# Of a path and of a prompt: what people call it says nothing of what runs in it.
_ENVIRONMENT = re.compile(r"/envs/[^/\s]+/|^\([\w.-]+\)(?= \S+@)", re.MULTILINE)
_RANK_OF_WATCHDOG = 45
_NOBODY_KNOWS = (
    "while it hangs: grpo-doctor attach; for the next run: grpo-doctor run -- COMMAND; before a "
    "launch: grpo-doctor check -- COMMAND"
)


def answer(text: str) -> Answer:
    """Return what a text shows. The first cause is the one whose effects the others are."""
    text = _ANSI.sub("", text)
    framework = _framework(text)
    ranked = [
        (
            match.signature.rank,
            Finding(
                name=match.signature.name,
                cls=match.signature.cls,
                certainty=match.signature.certainty,
                says=match.filled(match.signature.says, framework),
                line=match.line,
                quote=match.quote,
                fix=[match.filled(fix, framework) for fix in match.signature.fix],
                next=match.signature.next,
            ),
        )
        for match in matches(text)
    ]
    of_ranks = (watchdog_finding(text), stacks.dumps_finding(text))
    ranked += [(_RANK_OF_WATCHDOG, finding) for finding in of_ranks if finding is not None]
    ranked.sort(key=lambda pair: (pair[0], pair[1].line))
    findings = _without_repetitions([finding for _, finding in ranked])
    known = [finding for finding in findings if finding.name != "unknown-timeout"]
    cause = known[0] if known else None
    shown = stacks.shown(text)
    shown += [finding.says for finding in findings if finding.name == "unknown-timeout"]
    asked = next((finding.next for finding in findings if finding.next), "")
    return Answer(
        schema=SCHEMA,
        kinds=_kinds(text),
        framework=framework,
        cause=cause,
        others=known[1:6],
        shown=shown,
        next_step=(cause.next if cause else asked) or ("" if cause else _NOBODY_KNOWS),
    )


def _without_repetitions(findings: list[Finding]) -> list[Finding]:
    """Return one finding a line: a general signature does not repeat a more exact one."""
    kept: list[Finding] = []
    for finding in findings:
        same = {other.line for other in kept if other.line and other.cls == finding.cls}
        general = finding.name == "trainer-oom" and any(other.cls == "oom" for other in kept)
        if finding.line not in same and not general:
            kept.append(finding)
    return kept


def _framework(text: str) -> str:
    text = _ENVIRONMENT.sub("/", text)
    found = (name for name, pattern in _FRAMEWORKS if re.search(pattern, text, re.IGNORECASE))
    return next(found, "unknown")


def _kinds(text: str) -> list[str]:
    kinds = [name for name, pattern in _KINDS if re.search(pattern, text, re.MULTILINE)]
    if stacks.has_traceback(text):
        kinds.append("Python traceback")
    return kinds or (["log"] if text.strip() else ["nothing"])
