"""The errors of a text that were not handled, with the code that raised them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

FRAMEWORKS = (
    *("trl", "verl", "swift", "openrlhf", "vllm", "sglang", "deepspeed", "transformers", "peft"),
    *("accelerate", "megatron", "unsloth", "unsloth_zoo", "slime", "areal", "roll", "verifiers"),
    *("nemo_rl", "skyrl", "skyrl_train", "llamafactory", "open_instruct", "rlinf", "mbridge"),
    *("vllm_ascend", "liger_kernel"),
)
PACKAGES = (
    *FRAMEWORKS,
    *("ray", "torch", "datasets", "tokenizers", "huggingface_hub", "flash_attn", "bitsandbytes"),
)
FRAME = re.compile(
    r'File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>\S+)'
    r"|(?P<file2>[\w./~-]{1,300}\.py):(?P<line2>\d+),? in (?P<function2>[\w<>.]+)"
    r"|(?P<file3>/[\w./~-]{1,300}\.py) in (?P<function3>[\w<>.]+)"
    r"(?:[^\n]*\n){1,9}?-+> (?P<line3>\d+)"
    r"|(?m:^File (?P<file4>[/~][\w./~-]{1,300}\.py):(?P<line4>\d+)$)"
)
# What a launcher, Ray or vLLM puts before each line of a process.
_PREFIX = re.compile(
    r"^(?:\t|[\d.]+: |\[?rank\d+\]?: ?|\[[\w.-]+\]:? |\([\w .:=,/+-]{3,160}\) |"
    r"\[\d{4}-[^\]\n]{4,60}\] |"
    r"(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+:\d+\] ?)+",
    re.MULTILINE,
)
# Names that end otherwise stand at the begin of a line, with their module.
_OTHER = r"(?:[a-z_]\w{0,60}\.){1,9}[A-Z]\w{3,80}(?=: )"
_NAMED = re.compile(rf"[eE](?:rror|xception)(?=: |$)|^{_OTHER}", re.MULTILINE)
_ERROR = re.compile(
    r"[^\n\"']{0,160}?(?P<name>(?:CUDA |NCCL )?[a-zA-Z0-9_.]{0,80}"
    r"(?:[eE]xception|Error|error(?=: (?!\w{1,60}Error\b)))|" + _OTHER + r")"
    r"(?:: (?P<says>[^\n]{0,600}(?:\n  (?! *(?:\d+%|File \"|return ))[^\n]{3,300}){0,2}))?$",
    re.MULTILINE,
)
# In front of an error: it ended nothing.
NOTED = re.compile(r"(?<!NCCL )\b(?:\w*Warning|WARN(?:ING)?|INFO|DEBUG)\b|\[W\d{3,4} ")
_ENDINGS = ("error", "exception")  # of an error's name; alone on a line a heading
_LONGEST, _MOST = 40_000, 500  # characters of a traceback, errors of a text
# What a launcher, a driver, an engine or NCCL's watchdog says of the error of another process.
_SECOND_HAND = re.compile(
    r"ChildFailedError|CalledProcessError|detected by watchdog|RayTaskError|ActorDiedError|"
    r"Connection closed by peer|Connection reset by peer|[Rr]oot cause|process terminated|"
    r"EngineDeadError|ProcessExitedException|: Traceback \(|xception: \[Rank|Watchdog caught"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback; its package is empty for the user's own code."""

    path: str
    line: str
    function: str
    package: str

    @property
    def place(self) -> str:
        """File, line and function."""
        return f"{self.path.rsplit('/', 1)[-1]}:{self.line}, {self.function}"


@dataclass(frozen=True, slots=True)
class Error:
    """An error of a text: where it begins, its frames (the outermost first) and its last code."""

    name: str
    says: str  # of an assertion without words its condition
    start: int
    frames: tuple[Frame, ...]
    code: str
    tail: str
    ignored: bool = False

    @property
    def words(self) -> str:
        """The line of the error."""
        return f"{self.name}: {self.says}" if self.says else self.name

    @property
    def inner(self) -> Frame | None:
        """The innermost frame that is neither of Python's library nor of torch or Ray."""
        known = (f for f in reversed(self.frames) if f.package not in ("python", "torch", "ray"))
        return next(known, None)

    @property
    def package(self) -> str:
        """That of the innermost frame."""
        return self.frames[-1].package if self.frames else ""


def stripped(text: str) -> str:
    """Return a text without what a launcher puts before its lines; their numbers stay."""
    return _PREFIX.sub("", text)


def errors(text: str) -> list[Error]:
    """Return the first errors that were not handled, nor heard of from another process.

    Those that Python ignored, and lines that name no type, are the last. `text` is `stripped`.
    """
    return sorted(islice(_errors(text), _MOST), key=lambda error: error.ignored)


def _errors(text: str) -> Iterator[Error]:
    begin = end = line_end = 0
    found = None
    for named in _NAMED.finditer(text):
        if named.start() >= line_end:  # one match for a line, however often it names one
            begin = text.rfind("\n", line_end - 1 if line_end else 0, named.start()) + 1
            line_end = text.find("\n", named.start())
            line_end = line_end if line_end >= 0 else len(text)
            found = _ERROR.match(text, begin) if begin >= end else None
        if found is None or found.end("name") != named.end() or "raise " in found[0][:40]:
            continue
        name = found["name"].lower()
        if name in _ENDINGS and not found["says"]:
            continue
        if NOTED.search(text, begin, found.start("name")):
            continue
        since = max(end, begin - _LONGEST)
        since = max(since, text.rfind("RayTaskError(", since, begin))  # before it: the driver's
        frames = tuple(map(as_frame, FRAME.finditer(text, since, begin)))
        if not frames and not name.endswith(_ENDINGS):
            continue  # a class that a log names, not what a traceback ends with
        end = found.end()
        if _SECOND_HAND.search(found[0]) or "During handling of the above" in text[end : end + 300]:
            continue
        above = [line for line in text[since:begin].split("\n")[-4:] if line.strip("^~ ")]
        code = above[-1].strip() if above else ""
        asserted = re.search(r"\bassert [^\n]{3,300}", code)
        says = " ".join((found["says"] or (asserted[0] if asserted else "")).split())
        if says.endswith(":"):  # the error that this one wraps is on the next line
            says += " " + text[end : end + 600].strip().split("\n")[0]
        says = says.removesuffix(", (")  # words that begin on the next line
        start = found.start("name")
        ignored = name in _ENDINGS or "Exception ignored in" in text[since:begin]
        yield Error(found["name"], says, start, frames, code, text[start : start + 900], ignored)


def as_frame(found: re.Match[str]) -> Frame:
    """Return a match of `FRAME` with the package that its file belongs to."""
    path = (found["file"] or found["file2"] or found["file3"] or found["file4"]).replace("\\", "/")
    if "unsloth_compiled_cache" in path:
        package = "unsloth"
    elif installed := re.search(r".*(?:site|dist)-packages/([\w-]+)", path):
        package = installed[1]
    elif re.search(r"lib/python\d|/s?bin/|^<|_raylet|/single_controller/", path):
        package = "python"
    else:
        of = "|".join(PACKAGES)
        known = re.findall(rf"(?:^|/)({of})/(?!examples|recipe|tests|scripts)\w+[/.]", path)
        package = known[-1] if known else ""
    function = found["function"] or found["function2"] or found["function3"] or "<module>"
    line = found["line"] or found["line2"] or found["line3"] or found["line4"]
    return Frame(path, line, function, package)
