"""What an error shows that no signature knows: who raised it, about which settings or packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from grpo_doctor.diagnose.model import Certainty, Finding, line_at
from grpo_doctor.diagnose.stacks import SECOND_HAND
from grpo_doctor.knobs.option_lists import FOLDER

_FRAMEWORKS = (
    "trl|verl|swift|openrlhf|vllm|sglang|deepspeed|transformers|peft|accelerate|megatron|unsloth|"
    "unsloth_zoo|slime|areal|roll|verifiers|nemo_rl|skyrl|skyrl_train|llamafactory|open_instruct"
)
_PACKAGES = f"{_FRAMEWORKS}|ray|torch|datasets|tokenizers|huggingface_hub|flash_attn|bitsandbytes"
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]+)", line \d+, in (?P<function>\S+)'
    r"|(?P<file2>[\w./~-]{1,300}\.py):\d+,? in (?P<function2>[\w<>]+)"
)
_NAMED = re.compile(r"[eE](?:rror|xception)(?=: |$)", re.MULTILINE)
_ERROR = re.compile(
    r"[^\n\"']{0,160}?(?P<name>[\w.]{0,80}[eE](?:rror|xception))"
    r"(?:: (?P<says>[^\n]{0,600}(?:\n  [^\n]{3,300}){0,2}))?$",
    re.MULTILINE,
)
_REFUSING = re.compile(r"(?:Value|Assertion|Runtime|NotImplemented|Validation|Config\w*)Error$")
_DEMAND = re.compile(
    r"\b(?:must|should|cannot|can't|can not|needs? to|requires?|required|not supported|unsupported|"
    r"supports? only|only supports?|does ?n[o']t support|divisible|greater than|less than|larger|"
    r"smaller|exceeds?|at least|at most|incompatible|not compatible|not allowed|not implemented|"
    r"mutually exclusive|not enough|meet the required|please (?:set|specify|use|provide|enable))\b|"
    r"^assert ",
    re.IGNORECASE,
)
# A shape, a type or a state is what the program met, not what the user set.
_RUNTIME = re.compile(
    r"\bshapes?\b|size of tensor|\bdtype|scalar type|same device|\bdim(?:ension)?\b|torch\.Size|"
    r"NCCL|CUDA error|connection|timed out|HTTP|No such file|target batch_size",
    re.IGNORECASE,
)
_CHECK = re.compile(
    r"config|argument|\bargs\b|valid|__post_init__|check|parse|assert", re.IGNORECASE
)
_MISFIT = re.compile(
    r"(?P<what>[\w.]+\(\)) (?:got an unexpected keyword argument '(?P<arg>\w+)'|takes (?:from )?"
    r"\d+ (?:to \d+ )?positional arguments? but \d+ (?:was|were) given|missing \d+ required )|"
    r"(?P<what2>(?:module |type object )?'(?!(?:NoneType|str|list|dict|int|tuple|float|set)')"
    r"[\w.]+'(?: object)?) has no attribute '(?P<arg2>\w+)'"
)  # fmt: skip
_MEMORY = re.compile(
    r"out of (?:host |device )?memory|OutOfMemory|MemoryError|(?:Cannot|can't|Failed to|Unable to) "
    r"allocate[^\n]{0,40}(?:memory|bytes|\d[GM]i?B)|OOMKilled|oom[-_]kill",
    re.IGNORECASE,
)  # fmt: skip
_HOST = re.compile(
    r"MemoryError|DefaultCPUAllocator|host memory|Cannot allocate|Errno 12|OOMKilled|oom[-_]kill"
)
_TORCHRUN = re.compile(
    r"Root Cause \(first observed failure\)[\s\S]{0,200}?host *: (?P<host>\S+)[\s\S]{0,80}?rank *: "
    r"(?P<rank>\d+)[\s\S]{0,80}?exitcode *: (?P<code>-?\d+)"
)
_WORD = re.compile(r"[a-z]\w*_\w+\b(?!\.\w)")
_LONGEST = 40_000  # characters of a traceback


@dataclass(frozen=True, slots=True)
class _Error:
    """An error of a text. Frames, the outermost first, are a file with its function, and the
    package: none for code of the user, or of a program that is not known."""

    name: str
    says: str  # of an assertion without words its condition
    start: int
    frames: tuple[tuple[str, str], ...]


_Found = tuple[str, str, Certainty, str, str]


def general_finding(text: str) -> Finding | None:
    """Return what the first error shows that a rule can read; for texts without a signature."""
    for error in _errors(text):
        for rule in (_memory, _misfit, _refused):
            if found := rule(error):
                name, cls, certainty, says, fix = found
                return Finding(name, cls, certainty, says, *line_at(text, error.start), [fix])
    return None


def elsewhere(text: str) -> Finding | None:
    """Return which process's log has the reason, of what torchrun says when one fails."""
    if (found := _TORCHRUN.search(text)) is None:
        return None
    rank, host, code = found.group("rank", "host", "code")
    says = f"torchrun: rank {rank} of {host} failed first, exit code {code}"
    log = f"the log of rank {rank} (torchrun --log-dir DIR --tee 3 keeps one per rank)"
    return Finding("elsewhere", "fact", "possible", says, *line_at(text, found.start()), next=log)


def _errors(text: str) -> Iterator[_Error]:
    """Return the errors of a text that were not handled, nor heard of from another process."""
    end = 0
    for named in _NAMED.finditer(text):
        begin = text.rfind("\n", 0, named.start()) + 1
        found = _ERROR.match(text, begin) if begin >= end else None
        if found is None or found.end("name") != named.end():
            continue
        frames = tuple(map(_frame, _FRAME.finditer(text, max(end, begin - _LONGEST), begin)))
        end = found.end()
        if SECOND_HAND.search(found[0]) or "During handling of the above" in text[end : end + 300]:
            continue
        before = text[text.rfind("\n", 0, max(begin - 1, 0)) + 1 : begin]
        asserted = re.search(r"\bassert [^\n]{3,300}", before)
        says = " ".join((found["says"] or (asserted[0] if asserted else "")).split())
        yield _Error(found["name"], says, found.start("name"), frames)


def _frame(found: re.Match[str]) -> tuple[str, str]:
    path = (found["file"] or found["file2"]).replace("\\", "/")
    if installed := re.search(r".*(?:site|dist)-packages/([\w-]+)", path):
        package = installed[1]
    elif re.search(r"lib/python\d|/s?bin/|^<", path):
        package = "python"
    else:
        known = re.findall(rf"(?:^|/)({_PACKAGES})/(?!examples|recipe|tests|scripts)\w+/", path)
        package = known[-1] if known else ""
    return f"{path.rsplit('/', 1)[-1]} {found['function'] or found['function2']}", package


def _memory(error: _Error) -> _Found | None:
    words = f"{error.name}: {error.says}"
    if not _MEMORY.search(words):
        return None
    who = "The host" if _HOST.search(words) else "A GPU"
    fix = "lower the micro-batch, the length of a sequence or the rollout engine's share of the GPU"
    if who == "The host":
        fix = "give the job more memory, or hold less: offloads, loader workers, checkpoints"
    return "out-of-memory", "oom", "likely", f"{who} ran out of memory: {words}", fix


def _misfit(error: _Error) -> _Found | None:
    found = _MISFIT.search(error.says)
    if found is None or "reward" in found[0].lower():
        return None
    what, arg = found["what"] or found["what2"], found["arg"] or found["arg2"]
    packages = [package for _, package in error.frames if package in _PACKAGES.split("|")]
    near = [*dict.fromkeys(reversed(packages))][: 1 if "object" in what else 2]
    who = " and ".join(near) if near[1:] else "two packages, or script and package,"
    does = f"does not know {arg}" if arg else "is called with other arguments than it takes"
    says = f"{what} {does}: {who} are of versions that do not fit together."
    fix = "install the versions that the framework names together (its setup.py or lock file), on "
    return "versions-do-not-fit", "config", "possible", says, fix + "all hosts"


def _refused(error: _Error) -> _Found | None:
    """A program's own check of its settings; not what it met while it ran."""
    words, (place, package) = error.says, error.frames[-1] if error.frames else ("", "")
    if not (_REFUSING.search(error.name) and _DEMAND.search(words)) or _RUNTIME.search(words):
        return None
    if package not in ("", *_FRAMEWORKS.split("|")):
        return None
    options, checks = _named(words), _CHECK.search(place)
    compares = len(re.findall(r"\d+", words)) > 1 and not error.name.endswith("RuntimeError")
    if not (options or checks or compares):
        return None
    sure: Certainty = "likely" if package and options else "possible"
    what = "its settings" if sure == "likely" else "its settings or its data"
    says = f"{package or 'The program'} refused {what}: "
    fix = f"change {' or '.join(options[:4])}" if options else "change what the message names"
    return "settings-refused", "config", sure, f"{says}{words[:400]}", fix


@cache
def _options() -> frozenset[str]:
    """Return the last words of all options with an underscore; others are words of English."""
    lines = (line for path in FOLDER.glob("*.txt") for line in path.read_text().split("\n"))
    names = (line.split()[0].rsplit(".", 1)[-1] for line in lines if line[:1] not in ("", "#"))
    return frozenset(name.replace("-", "_") for name in names if "_" in name or "-" in name)


def _named(words: str) -> list[str]:
    """Return the options that a message names, in words of English too, or as a name's end."""
    ends = tuple("_" + each for each in _options())
    names = [word for word in dict.fromkeys(_WORD.findall(words)) if f"_{word}".endswith(ends)]
    plain = (each for each in _options() if each.count("_") > 1)
    return names or sorted(each for each in plain if each.replace("_", " ") in words.lower())
