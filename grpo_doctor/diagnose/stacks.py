"""Stack dumps and tracebacks in a text: py-spy's, faulthandler's, Python's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grpo_doctor.diagnose.errors import FRAME, Error, as_frame
from grpo_doctor.diagnose.model import Finding

_PYSPY = re.compile(r"^Process (\d{1,18}): (.*)$", re.MULTILINE)
_PYSPY_MAIN = re.compile(r'Thread (\d{1,18}) \([a-z+]+\): "MainThread"')
_PYSPY_THREAD = re.compile(r'^Thread [^\n]*?\(([a-z+]+)\)(?:: "([^"]*)")?', re.MULTILINE)
_CURRENT = re.compile(r'Current thread 0x[^\n]{4,80}\n\s{1,8}File "([^"\n]+)", line (\d+) in (\S+)')
_PYSPY_FRAME = re.compile(r"^\s+(\S+) \(([^():]+):(\d+)\)", re.MULTILINE)
_COLLECTIVE = re.compile(
    r"all_reduce|all_gather|reduce_scatter|broadcast|barrier|all_to_all|gather|wait_tensor"
)
_LIBRARY = re.compile(
    r"site-packages|dist-packages|lib/python\d|<frozen|/s?bin/|"
    r"^(?:torch|deepspeed|vllm|ray|accelerate|transformers)/|<eval|^\w{40,}\.py"
)


@dataclass(frozen=True, slots=True)
class _Dump:
    pid: int
    frames: tuple[tuple[str, str, str], ...]  # function, file, line; the innermost first
    elsewhere: bool  # another thread, as autograd's, is in a collective

    @property
    def in_collective(self) -> bool:
        own = any(_COLLECTIVE.search(function) for function, _, _ in self.frames[:12])
        return own or self.elsewhere

    @property
    def place(self) -> str:
        """The innermost line of the user's own code, else the innermost."""
        if not self.frames:
            return "no line of Python (in compiled code)"
        own = (frame for frame in self.frames if not _LIBRARY.search(frame[1]))
        frame = next(own, self.frames[0])
        return f"{frame[0]} ({frame[1]}:{frame[2]})"


def dumps_finding(text: str) -> Finding | None:
    """Return who holds the others up, of several processes' py-spy dumps; None without any."""
    dumps = _dumps(text)
    if len(dumps) < 2:
        return None
    waiting = [dump for dump in dumps if dump.in_collective]
    others = [dump for dump in dumps if not dump.in_collective]
    if not waiting or not others:
        return None
    named = "; ".join(f"process {dump.pid} is at {dump.place}" for dump in others[:4])
    return Finding(
        name="rank-elsewhere",
        cls="hang",
        certainty="likely" if len(others) == 1 else "possible",
        says=f"{len(waiting)} of {len(dumps)} processes wait{'s' * (len(waiting) == 1)} in a "
        f"collective; {named}.",
        fix=["find out what that line waits for; give it a time-out"],
        next=f"grpo-doctor attach {others[0].pid}",
    )


def shown(text: str, errors: list[Error]) -> list[str]:
    """Return facts: where each dumped process or the last stack is, and the first error."""
    facts = [
        f"process {dump.pid}: {'another thread in a collective, ' * dump.elsewhere}main thread "
        f"{'in a collective, ' * (dump.in_collective and not dump.elsewhere)}at {dump.place}"
        for dump in _dumps(text)[:8]
    ]
    if current := _CURRENT.search(text):
        facts.append(f"the thread that ended was at {current[1]}:{current[2]}, {current[3]}")
    elif not errors and (frames := [*FRAME.finditer(text)]):
        last = as_frame(frames[-1])
        if not re.search("[eE]rror|[eE]xception", text[frames[-1].end() :]):
            where = f"{last.path}:{last.line}, {last.function}"
            facts.append(f"the last stack ends at {where}; its error is not in the text")
    if errors:
        first = errors[0]  # the others follow from it
        own = [each for each in first.frames if not _LIBRARY.search(each.path)] or first.frames
        where = f" at {own[-1].path}:{own[-1].line}, {own[-1].function}" if own else ""
        facts.append(f"the first error is {first.words[:300]}{where}")
    return facts


def _dumps(text: str) -> list[_Dump]:
    found = {}
    starts = [*_PYSPY.finditer(text)] or [*_PYSPY_MAIN.finditer(text)]
    for start, following in zip(starts, [*starts[1:], None]):
        part = text[start.start() : following.start() if following else None]
        threads = [*_PYSPY_THREAD.finditer(part)]
        mains = [t for t in threads if t[2] in ("MainThread", None)] or threads
        if not mains:
            continue
        frames = {}
        for thread, after in zip(threads, [*threads[1:], None]):
            end = after.start() if after else len(part)
            each = _PYSPY_FRAME.finditer(part, thread.end(), end)
            frames[thread] = tuple((frame[1], frame[2], frame[3]) for frame in each)
        main = frames.pop(mains[0])
        calls = (calls[0] for calls in frames.values() if calls)
        elsewhere = any(f.startswith("torch/dist") and _COLLECTIVE.search(n) for n, f, _ in calls)
        pid = int(start[1])
        found[pid] = _Dump(pid, main, elsewhere)
    return [*found.values()]
