"""Console logs as lines: colours, Ray's prefixes, progress bars, many processes in one file.

Lines of a log that say that the job failed: time-outs, memory, exceptions, signals.
"""

from __future__ import annotations

import gzip
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import cast

from grpo_doctor.bounded import LOG, LOG_LINE
from grpo_doctor.errors import TraceError

HEAD_BYTES = 64 << 10
_BLOCK_BYTES = 1 << 20
_LARGEST_BYTES = LOG.bytes
_OVERLAP_BYTES = 4 << 10
_GZIP = b"\x1f\x8b"
# A log of a job holds no line of this length; a file without line ends must not fill memory.
_LONGEST_LINE_BYTES = LOG_LINE.bytes
# `[2026-03-25 11:39:14] ...` and `[INFO] ...` begin logs.
_JSON = re.compile(rb'\s*(?:\{\s*"|\[\s*[\{\]]|\xef\xbb\xbf)')
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Ray: `(TaskRunner pid=123)`, with `, ip=10.0.0.1` on several hosts.
# Bounded: an actor's name has no end to be looked for in a line of 16 MB.
_ACTOR = re.compile(r"^\s{0,80}(\(\w[^()]{0,200}pid=\d{1,10}[^()]{0,200}\))\s?")
# A number as frameworks print it: 0.5, 1e-06, nan, np.float64(2.0), tensor(0.5, device='cuda:0').
NUMBER = (
    r"(?:[A-Za-z_][\w.]*\()?"
    r"([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|[Nn]a[Nn]|[Ii]nf(?:inity)?))"
)
_IN_DICTIONARY = re.compile(rf"'([^']+)': {NUMBER}(?=[^\w.])")
_NARROWEST, _WIDEST, _MOST_PARTS = 60, 1000, 200  # characters of a terminal, lines of a row
_NEXT_KEY = re.compile(r"""\s*['"]\w""")
_OF_PAIRS = re.compile(r"(?![(\[])[ -]*(?:\S+ - )*\S* ?-? ?")
UNREADABLE = (OSError, EOFError, zlib.error)


def is_log(head: bytes) -> bool:
    """Return whether a file that begins so is lines of text: neither JSON nor binary."""
    return bool(head.strip()) and b"\0" not in head and _JSON.match(head) is None


def read_head(path: Path) -> bytes:
    """Return the first 64 KiB of a file, unpacked.

    Raises:
        TraceError: it can't be read.
    """
    try:
        with opened(path) as file:
            return read_block(file, HEAD_BYTES)
    except UNREADABLE as problem:
        raise TraceError(f"can't read {path}: {problem}. Check the file.") from problem


def read_all(path: Path) -> bytes:
    """Return a whole file, unpacked, as far as it is there; for files of some MB.

    Raises:
        TraceError: it can't be read, or is larger than 1 GiB.
    """
    blocks = bytearray()
    try:
        with opened(path) as file:
            while block := read_block(file, _BLOCK_BYTES):
                blocks += block
                if len(blocks) > _LARGEST_BYTES:
                    raise TraceError(f"{path} has over 1 GiB, which no such log has.")
    except (EOFError, zlib.error):
        pass
    except OSError as problem:
        raise TraceError(f"can't read {path}: {problem.strerror or problem}.") from problem
    return bytes(blocks)


def command_of(line: str, module: str) -> tuple[str, ...]:
    """The words of a command that runs a Python module, as a shell with `-x` or ms-swift prints
    it; none where this is no such line."""
    if module not in line:
        return ()
    try:
        return tuple(shlex.split(line.lstrip("+ ").replace("`", " ")))
    except ValueError:  # quotes that don't close
        return ()


def contains(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a file has a match of at most 4 KiB anywhere."""
    overlap = b""
    try:
        with opened(path) as file:
            while block := read_block(file, _BLOCK_BYTES):
                if pattern.search(overlap + block):
                    return True
                overlap = block[-_OVERLAP_BYTES:]
    except UNREADABLE:
        return False
    return False


def lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield each line: its number from 1, its text without colours, and whether it has its end.

    What follows damage in compressed data is left out.

    Raises:
        TraceError: the file can't be read, or has a line of over 16 MiB.
    """
    number = 0
    try:
        with opened(path) as file:
            while line := file.readline(_LONGEST_LINE_BYTES):
                number += 1
                if len(line) == _LONGEST_LINE_BYTES:
                    raise TraceError(
                        f"{path}, line {number} has over {_LONGEST_LINE_BYTES >> 20} MiB: this "
                        f"is not a console log. Give the file that the job's output was written to."
                    )
                text = line.decode("utf-8", "replace")
                yield number, _COLOUR.sub("", text.rstrip("\r\n")), text.endswith("\n")
    except (EOFError, zlib.error):
        yield number + 1, "", False
    except OSError as problem:
        raise TraceError(f"can't read {path}: {problem.strerror or problem}.") from problem


def unwrapped(
    found: Iterable[tuple[int, str, bool]], begins: re.Pattern[str]
) -> Iterator[tuple[int, str, bool]]:
    """The lines; what begins with `begins` and was broken at a terminal's width is one again."""
    record: list[tuple[int, str, bool]] = []
    width = 0
    for number, line, whole in found:
        width = max(width, len(line))
        full = bool(record) and (len(record[-1][1]) == width or _between_keys(record, line))
        if full and _goes_on(record, line, begins):
            record.append((number, line, whole))
            continue
        if record:
            yield _as_one(record)
        record = [(number, line, whole)] if begins.search(line) else []
        if not record:
            yield number, line, whole
    if record:
        yield _as_one(record)


def _between_keys(record: list[tuple[int, str, bool]], line: str) -> bool:
    """Return whether somebody broke a pasted dictionary after a comma."""
    return record[-1][1].rstrip().endswith(",") and _NEXT_KEY.match(line) is not None


def _goes_on(record: list[tuple[int, str, bool]], line: str, begins: re.Pattern[str]) -> bool:
    """Return whether a line is the rest of a dictionary, or of pairs like `k:1 - l:2`."""
    if not _NARROWEST <= len(record[-1][1]) <= _WIDEST or len(record) >= _MOST_PARTS:
        return False
    opened = sum(part.count("{") - part.count("}") for _, part, _ in record)
    pairs = "{" not in record[0][1] and not begins.search(line)
    return opened > 0 or bool(pairs and _OF_PAIRS.fullmatch(line))


def _as_one(record: list[tuple[int, str, bool]]) -> tuple[int, str, bool]:
    return record[0][0], "".join(part for _, part, _ in record), record[-1][2]


def numbers_of(dictionary: str) -> dict[str, float]:
    """Return the numbers of a dictionary as Python prints it, without a last one that is cut."""
    return {key: float(value) for key, value in _IN_DICTIONARY.findall(dictionary)}


def without_actor(line: str) -> tuple[str, str]:
    """Ray's prefix of a line, empty where it has none, and the rest."""
    prefix = _ACTOR.match(line)
    return (prefix[1], line[prefix.end() :]) if prefix else ("", line)


def read_block(file: BufferedReader, size: int) -> bytes:
    """The next bytes of an opened file. Of compressed data that ends early those before its end
    are given first: `read` loses them."""
    parts: list[bytes] = []
    missing = size
    while missing:
        try:
            part = file.read1(missing)
        except UNREADABLE:
            if parts:
                break
            raise
        if not part:
            break
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def opened(path: Path) -> BufferedReader:
    """Return a file's content, unpacked if it is gzip; reading may raise what is `UNREADABLE`."""
    file = path.open("rb")
    packed = file.read(2) == _GZIP
    file.seek(0)
    return cast("BufferedReader", gzip.GzipFile(fileobj=file)) if packed else file


_FATAL = re.compile(
    r"Watchdog caught collective operation timeout|CUDA out of memory|OutOfMemoryError"
    r"|CUDA error: |NCCL (?:error|failure)|ncclSystemError|ncclRemoteError|ncclUnhandledCudaError"
    r"|ChildFailedError|RayTaskError|RayActorError|ActorDiedError|OwnerDiedError"
    r"|exitcode {0,9}:? {0,9}-?[1-9]|Signal \d+ \(SIG\w+\) received|oom-kill|Out of memory: Killed"
    r"|Segmentation fault|Fatal Python error|terminate called after|\(core dumped\)"
    r"|^\s*(?:\S+: line \d+: +\d+ )?Killed\b"
)
_TRACEBACK = "Traceback (most recent call last)"
# What Python prints of an exception that it goes on after.
_IGNORED = "Exception ignored in"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Died)\b.*")
_RANK = re.compile(r"^\s*\[(?:rank)?\d+\]: ?|\[repeated \d+x across cluster\].*$")
_TABLE = re.compile(r"\s*[│┃|┏┡└├]")
_INTERRUPT = "KeyboardInterrupt"
_LONGEST = 160


class FatalLines:
    """The first fatal line after the last step, and how many steps followed earlier ones."""

    def __init__(self) -> None:
        self.text = ""
        self.number = 0
        self._in_traceback = self._ignored = False
        self._survived: dict[int, str] = {}

    def step(self) -> None:
        """A line of a step: what was fatal before it was not."""
        if self.text:
            self._survived[self.number] = self.text
        self.text, self._in_traceback = "", False

    def read(self, number: int, line: str) -> None:
        """A line that is not a step."""
        if self.text or _TABLE.match(line):
            return
        text = _RANK.sub("", without_actor(line)[1])
        if _TRACEBACK in text or _IGNORED in text:
            self._in_traceback = _IGNORED not in text and not self._ignored
            self._ignored = _IGNORED in text
        elif found := _FATAL.search(text):
            self._keep(number, text[found.start() :])
        elif self._in_traceback and (raised := _EXCEPTION.match(text)):
            # What the job went on after before does not end it now.
            if _shortened(raised[0]) not in self._survived.values():
                self._keep(number, raised[0])
            self._in_traceback = False

    def _keep(self, number: int, text: str) -> None:
        self.text, self.number, self._in_traceback = _shortened(text), number, False

    @property
    def state(self) -> str:
        """How the job ended, of a log that has such a line."""
        return "interrupted" if self.text.startswith(_INTERRUPT) else "failed"

    @property
    def sentence(self) -> str:
        """`Line 31 of the log: ...`; empty where the log has no such line after its last step."""
        return f"Line {self.number} of the log: {self.text}" if self.text else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Errors after which the job made further steps."""
        if not self._survived:
            return ()
        lines = ", ".join(map(str, list(self._survived)[:8]))
        return (f"The log has errors after which the job made further steps: line {lines}.",)


def _shortened(text: str) -> str:
    text = text.strip(" .")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def fatal_sentence(path: Path) -> str:
    """Return the first fatal line of a log that has no step; empty without one."""
    fatal = FatalLines()
    for number, line, _ in lines(path):
        fatal.read(number, line)
    return fatal.sentence
