"""From text to an answer: what it is, what it shows, the cause where that follows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

from msgspec.structs import replace

from grpo_doctor.diagnose import general, rows, signatures, stacks
from grpo_doctor.diagnose.errors import errors, stripped
from grpo_doctor.diagnose.literals import letters, may_match
from grpo_doctor.diagnose.model import Answer, Finding
from grpo_doctor.diagnose.watchdog import dump_signals, watchdog_finding

SCHEMA = 1
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|\r(?!\n)")
_FRAMEWORKS = (  # in lower case
    ("ms-swift", r"\bswift (?:rlhf|rollout|sft)|\[info:swift|/swift/|\bms-swift"),
    ("openrlhf", r"openrlhf", ),
    ("verl", r"\bverl\b|actor_rollout_ref|workerdict|/verl/"),
    ("trl", r"\btrl\b|grpoconfig|grpotrainer|grpo_trainer\.py"),
)  # fmt: skip
_KINDS = (
    ("NCCL watchdog text", r"atchdog (?:caught collective|got stuck)|due to a collective timeout"),
    ("NCCL log", r"NCCL (?:INFO|WARN)"),
    ("py-spy dump", r'^Process \d+: .*\n(?:Python v|\n|Thread)|Thread \d+ \(\w+\): "MainT'),
    ("faulthandler stacks", r"^(?:Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\)"),
    ("nvidia-smi", r"NVIDIA-SMI \d|\d+MiB / +\d+MiB \||Unable to determine the device handle"),
    ("kernel log", r"NVRM: Xid|oom-kill|Out of memory: Killed process|pcieport "),
    ("metric rows", r"\{'loss': |step:\d+ - |Global step \d+: \{|grad[_ ]norm: \S+ "),
    ("Ray status", r"Autoscaler status|Resources\n-{5,}"),
    ("log of Ray", r"\(\w+ pid=\d+|ray\.exceptions|MEM\(GB\)\s+COMMAND"),
    (
        "launch",
        r"torchrun|(?:accelerate|deepspeed|vllm|swift|trl) (?:launch|--|serve|r\w+|grpo)|-m verl",
    ),
    ("Python traceback", r'Traceback \(most recent|(?<!")\bFile "[^"\n]+", line \d+, in '),
)
# Of a path and of a prompt: what people call it says nothing of what runs in it.
_ENVIRONMENT = re.compile(r"/envs/[^/\s]+/|^\([\w.-]+\)(?= \S+@)", re.MULTILINE)
# What a terminal's width may be, and what begins an entry of a log or a row of a table.
_NARROWEST, _FEWEST_FULL = 60, 3
_ENTRY = re.compile(
    r"[\[(|+{]|\s\s|$|\d+\s\s|\d{2,4}[-:/]\d\d|[A-Z]{4,8}\b|frame #|Traceback|\w+Error:"
)
_RANK_OF_ROWS, _RANK_OF_WATCHDOG = 32, 45
_RANK_OF_GENERAL = 63  # what follows is a symptom, as a dead worker's: its reason is elsewhere
_FAILS = re.compile(
    r"(?i)error|exception|traceback|fail|time[d-]? ?out|abort|kill|signal|stuck|\bhang|\bnan\b|"
    r"crash|\boom|dump"
)
_NOBODY_KNOWS = (
    "while it hangs: grpo-doctor attach; for the next run: grpo-doctor run -- COMMAND; before a "
    "launch: grpo-doctor check -- COMMAND"
)
_REST_OF_AN_ERROR = "the whole traceback, to its last line, and pip list: they say who raised it"
_STACKS = "the stacks of all ranks at one moment: grpo-doctor attach (--slurm, --ray, --ssh)"
_TO_COLLECT = (  # by kind of text; of an empty one always
    ("metric rows", f"for its speed and its learning: grpo-doctor report FILE; {_NOBODY_KNOWS}"),
    ("py-spy dump", _STACKS),
    ("faulthandler stacks", _STACKS),
    ("", _NOBODY_KNOWS),
)


def answer(text: str) -> Answer:
    """Return what a text shows. The first cause is the one whose effects the others are."""
    text, lines = _unwrapped(_ANSI.sub("", text))
    framework, of_text, bare = _framework(text), letters(text), stripped(text)
    raised = errors(bare)
    ranked = [*signatures.findings(text, of_text, framework)]
    read = (
        (_RANK_OF_WATCHDOG, watchdog_finding(text)),
        (_RANK_OF_WATCHDOG, stacks.dumps_finding(text)),
        (_RANK_OF_ROWS, rows.gradient_finding(text, framework)),
        (_RANK_OF_ROWS, rows.ray_finding(text)),
    )
    ranked += [(rank, finding) for rank, finding in read if finding is not None]
    known = any(rank < _RANK_OF_GENERAL and finding.cls != "fact" for rank, finding in ranked)
    if not known and (found := general.general_finding(bare, raised)):
        ranked.append((_RANK_OF_GENERAL, found))
    ranked.sort(key=lambda pair: (pair[0], pair[1].line))
    findings = [
        replace(finding, line=lines[finding.line - 1] if finding.line else 0)
        for finding in _without_repetitions([finding for _, finding in ranked])
    ]
    facts = [finding for finding in findings if finding.cls == "fact"]
    causes = [finding for finding in findings if finding not in facts]
    cause = causes[0] if causes else None
    shown = [*stacks.shown(text, raised), *rows.gpus_shown(text), *dump_signals(text)]
    shown += [finding.says for finding in facts]
    if not findings and not shown and not _FAILS.search(text):
        shown.append("no line names an error, a time-out or a signal")
    kinds = _kinds(text, of_text)
    asked = cause.next if cause else next((each.next for each in findings if each.next), "")
    is_cut = not raised[0].frames if raised else "Traceback (most recent" in text
    if not asked and is_cut and (cause is None or cause.certainty == "possible"):
        asked = _REST_OF_AN_ERROR
    if not asked and cause is None:
        asked = next(say for kind, say in _TO_COLLECT if kind in kinds or not kind)
    return Answer(
        schema=SCHEMA,
        kinds=kinds,
        framework=framework,
        cause=cause,
        others=causes[1:6],
        shown=shown,
        next_step=asked,
    )


def _unwrapped(text: str) -> tuple[str, list[int]]:
    """Return a text without the breaks of a terminal, and the number of each line's first one.

    Lines that a terminal broke have its width: the most frequent length. A line that begins as a
    new entry of a log does is none of their ends.
    """
    split = text.split("\n")
    lengths = Counter(len(line) for line in split if len(line) >= _NARROWEST)
    width = next((length for length, n in lengths.most_common(1) if n >= _FEWEST_FULL), None)
    parts, numbers = [split[0]], [1]
    for number, (before, line) in enumerate(pairwise(split), 2):
        if len(before) != width or line[:8] == before[:8] or _ENTRY.match(line):
            parts.append("\n")
            numbers.append(number)
        parts.append(line)
    return "".join(parts), numbers


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
    text = letters(_ENVIRONMENT.sub("/", text))  # their names have no digits
    return next((name for name, pattern in _FRAMEWORKS if re.search(pattern, text)), "unknown")


def _kinds(text: str, of_text: str) -> list[str]:
    kinds = [name for name, pattern in _KINDS if _has(pattern, text, of_text)]
    return kinds or (["log"] if text.strip() else ["nothing"])


def _has(pattern: str, text: str, of_text: str) -> bool:
    return may_match(pattern, of_text) and re.search(pattern, text, re.MULTILINE) is not None
