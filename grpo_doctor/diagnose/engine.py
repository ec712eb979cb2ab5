"""From text to an answer: what it is, what it shows, the cause where that follows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from grpo_doctor.diagnose import general, rows, signatures, stacks
from grpo_doctor.diagnose.errors import FRAME, NOTED, errors, stripped
from grpo_doctor.diagnose.learned import rows_findings
from grpo_doctor.diagnose.literals import letters, may_match
from grpo_doctor.diagnose.model import Answer, Finding
from grpo_doctor.diagnose.watchdog import dump_signals, watchdog_finding

SCHEMA = 1
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\\\)|\r(?!\n)")
# A folder of that name may hold anything.
_VERL = r"(?<!/)\bverl\b(?!/)|(?:volcengine|-packages)/verl|verl/(?:trainer|workers|utils)/"
_FRAMEWORKS = (  # in lower case
    ("ms-swift", r"\bswift (?:rlhf|rollout|sft)|\[info:swift|/swift/|\bms-swift"),
    ("openrlhf", r"openrlhf", ),
    ("verl", _VERL + r"|actor_rollout_ref|workerdict"),
    ("trl", r"\btrl\b|grpoconfig|grpotrainer|grpo_trainer\.py"),
)  # fmt: skip
_KINDS = (
    ("NCCL watchdog text", r"atchdog (?:caught collective|got stuck)|due to a collective timeout"),
    ("NCCL log", r"NCCL (?:INFO|WARN)"),
    ("py-spy dump", r'^Process \d+: .*\n(?:Python v|\n|Thread)|Thread \d+ \(\w+\): "MainT'),
    ("faulthandler stacks", r"^(?:Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\)"),
    ("nvidia-smi", r"NVIDIA-SMI \d|\d+MiB / +\d+MiB \||Unable to determine the device handle"),
    ("kernel log", r"NVRM: |AMD-Vi: |oom-kill|Out of memory: Killed process|pcieport "),
    (
        "metric rows",
        r"(?m:^|\{)'loss': |step:\d+ - |Step *\|.*\breward|Global step \d+: \{|grad[_ ]norm: \S+ ",
    ),
    ("Ray status", r"Autoscaler status|Resources\n-{5,}"),
    ("log of Ray", r"\((?!Engine|API|Worker_)\w+ pid=\d+|ray\.exceptions|MEM\(GB\)\s+COMMAND"),
    (
        "launch",
        r"(?:torchrun|accelerate|deepspeed|vllm|swift|trl) (?:launch|--|serve|r\w+|grpo)|-m verl",
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
_RANK_OF_WAITS = 61  # of time-outs that do not say why: after what ended a rank
_RANK_OF_GENERAL = 63  # what follows is a symptom, as a dead worker's: its reason is elsewhere
_FAILS = re.compile(
    r"(?i)error|exception|traceback|fail|time[d-]? ?out|abort|kill|signal|stuck|\bhang|\bnan\b|"
    r"crash|\boom|dump"
)
_MOST_FAILING = 200
_REST_OF_AN_ERROR = "the whole traceback, to its last line, and pip list: they say who raised it"
_REST_OF_OTHERS = (
    "this error says little by itself: the first error, from the same time, in the logs of the "
    "processes that it waited for or called (workers, engine, other ranks)"
)
_STACKS = "the stacks of all ranks at one moment: grpo-doctor attach (--slurm, --ray, --ssh)"
_STEP_TIMES = (
    "where a step's time goes: grpo-doctor run -- COMMAND, or of a log with timers grpo-doctor "
    "report LOG; on several hosts also NCCL_DEBUG=INFO (NET/IB or NET/Socket?)"
)


class _Ask(NamedTuple):
    """What to look at next, for kinds of text or for what a user says in words."""

    say: str
    kinds: tuple[str, ...] = ()
    words: str = "(?!)"


_TO_COLLECT = (  # the first that fits
    _Ask(_STACKS, kinds=("py-spy dump", "faulthandler stacks")),
    _Ask(
        f"while it hangs: {_STACKS}",
        words=r"stuck|\bhang|hung\b|freez|deadlock|time[d-]? ?out|卡住|卡死|超时",
    ),
    _Ask(
        "the rows of the log around the first bad step: grpo-doctor report LOG judges them",
        words=r"\bnan\b|diverg|collaps|(?:reward|accuracy)\b[^\n]{0,60}\b(?:drop|fall|stays?\b)|准确率",
    ),
    _Ask(
        "who holds the memory, step by step: grpo-doctor run -- COMMAND records it for each rank",
        words=r"memory (?:\w+ )?(?:leak|rais|ris|grow|increas|keeps)|内存泄|内存不断",
    ),
    _Ask(
        _STEP_TIMES,
        words=r"\bslow|it takes|took [\w ]{0,20}(?:min|hour)|utili[sz]ation|耗时|太慢",
    ),
    _Ask(
        "more rows, in a file: grpo-doctor report LOG judges speed and learning",
        kinds=("metric rows",),
    ),
    _Ask(
        "whether the command fits: grpo-doctor check -- COMMAND; what it met: its log",
        kinds=("launch",),
    ),
    _Ask("the whole log of the process that failed first, the command, and pip list", words=""),
)


def answer(text: str) -> Answer:
    """Return what a text shows. The first cause is the one whose effects the others are."""
    text, lines = _unwrapped(_ANSI.sub("", text))
    framework, of_text, bare = _framework(text), letters(text), stripped(text)
    raised = errors(bare)
    ranked = [*signatures.findings(text, of_text, framework, ended=bool(raised))]
    read = (
        (_RANK_OF_WATCHDOG, stacks.dumps_finding(text)),
        (_RANK_OF_ROWS, rows.gradient_finding(text, framework)),
        (_RANK_OF_ROWS, rows.ray_finding(text)),
    )
    ranked += [(rank, finding) for rank, finding in read if finding is not None]
    known = any(rank < _RANK_OF_GENERAL and finding.cls != "fact" for rank, finding in ranked)
    if not known and (found := general.general_finding(bare, raised)):
        ranked.append((_RANK_OF_ROWS, found))  # the others' time-outs follow from it
    if waits := watchdog_finding(text):
        sure = waits.certainty != "possible"
        ranked.append((_RANK_OF_WATCHDOG if sure else _RANK_OF_WAITS, waits))
    ranked.sort(key=lambda pair: (pair[0], pair[1].line))
    findings = [
        replace(finding, line=lines[finding.line - 1] if finding.line else 0)
        for finding in _without_repetitions([finding for _, finding in ranked])
    ]
    facts = [finding for finding in findings if finding.cls == "fact"]
    causes = [finding for finding in findings if finding not in facts]
    kinds = _kinds(text, of_text)
    if "metric rows" in kinds and not any(finding.cls == "quality" for finding in causes):
        causes += rows_findings(text)
    cause = causes[0] if causes else None
    shown = [*stacks.shown(text, raised), *rows.gpus_shown(text), *dump_signals(text)]
    shown += [finding.says for finding in facts]
    if not findings and not shown:
        shown += _failing_lines(text)
    asked = cause.next if cause else next((each.next for each in findings if each.next), "")
    whole = raised and raised[0].frames and raised[0].says
    is_cut = not whole if raised else FRAME.search(bare) or "Traceback (most" in text
    if not asked and is_cut and (cause is None or cause.certainty == "possible"):
        asked = _REST_OF_AN_ERROR
    if not asked and cause is None and raised:
        follows = general.comes_from_outside(raised[0])
        asked = _REST_OF_OTHERS if follows else _REST_OF_AN_ERROR
    if not asked and cause is None:
        asked = _to_collect(kinds, text)
    return Answer(
        schema=SCHEMA,
        kinds=kinds,
        framework=framework,
        cause=cause,
        others=causes[1:6],
        shown=shown,
        next_step=asked,
    )


def _failing_lines(text: str) -> list[str]:
    """Return that no line names a failure, or that those which do are notes of a log."""
    first = [*islice(_FAILS.finditer(text), _MOST_FAILING)]
    if not first:
        return ["no line has a word such as error, failed, killed or timed out"]
    if all(NOTED.search(text, text.rfind("\n", 0, f.start()) + 1, f.start()) for f in first):
        return ["the lines that name a failure are of level INFO or WARNING: they ended nothing"]
    return []


def _to_collect(kinds: list[str], text: str) -> str:
    """Return what to look at next where nothing in the text says it."""
    lower = text.lower()
    asks = (
        ask for ask in _TO_COLLECT if set(ask.kinds) & set(kinds) or re.search(ask.words, lower)
    )
    return next(asks).say


def _unwrapped(text: str) -> tuple[str, list[int]]:
    """Return a text without the breaks of a terminal, and the number of each line's first one.

    Lines that a terminal broke have its width: the most frequent length. A line that begins as a
    new entry of a log does is none of their ends.
    """
    split = text.split("\n")
    lengths = Counter(len(line) for line in split if len(line) >= _NARROWEST)
    width = next((length for length, n in lengths.most_common(1) if n >= _FEWEST_FULL), None)
    if width != max(map(len, split)):  # a terminal shows no longer line
        width = None
    parts, numbers = [split[0]], [1]
    for number, (before, line) in enumerate(pairwise(split), 2):
        if len(before) != width or line[:8] == before[:8] or _ENTRY.match(line):
            parts.append("\n")
            numbers.append(number)
        parts.append(line)
    return "".join(parts), numbers


def _without_repetitions(findings: list[Finding]) -> list[Finding]:
    """Return one cause a line: a general signature does not repeat a more exact one."""
    kept: list[Finding] = []
    for finding in findings:
        same = {other.line for other in kept if other.line and other.cls == finding.cls}
        general = finding.name == "trainer-oom" and any(other.cls == "oom" for other in kept)
        if finding.cls == "fact" or (finding.line not in same and not general):
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
