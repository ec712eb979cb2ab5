"""Draws docs/images/attach.svg: `python -m tests.site.attach_picture [FILE]`, or `make picture`.

A real job of TRL on two CPU ranks (docs/examples/trl_job.py), whose reward waits on rank 1 for a
program that never ends, and what `grpo-doctor attach` says of it, line by line as it came; only
pauses of more than a second are cut to one.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "docs" / "examples" / "trl_job.py"
STEPS_BEFORE = 9  # logged before the reward is called that never ends
STUCK = 3  # attach's exit code

COLUMNS = 88
CHARACTER, LINE, MARGIN = 8.43, 19, 16  # in px, of a font of 14 px
TYPED_S, LONGEST_PAUSE_S, SHORTEST_PAUSE_S, HELD_S = 1.2, 1.0, 0.1, 12.0

# The terminal's colours on a light and on a dark page: each has a contrast of 4.5 or more.
_COLOURS = {
    "red": ("#b42318", "#ff8a80"),
    "green": ("#1a7f37", "#7ee787"),
    "yellow": ("#8a5a00", "#e3b341"),
    "blue": ("#0a58ca", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0b6e7f", "#76e3ea"),
    "plain": ("#1f2328", "#e6edf3"),
    "dim": ("#59636e", "#9198a1"),
}
_CONSOLE = Console()
_BY_NUMBER = ("plain", "red", "green", "yellow", "blue", "magenta", "cyan", "plain")


@dataclass(frozen=True)
class Line:
    """A line of a terminal with its escape codes, and how long after the one before it came."""

    printed: str
    pause_s: float


def drawn(command: str, lines: Sequence[Line]) -> str:
    """A command and what it printed as an SVG that plays for ever, without a script.

    Where the reader's system asks for less motion, everything is there from the start.
    """
    at_s = TYPED_S
    rows: list[str] = []
    moments_s: list[float] = []
    for line in lines:
        at_s += min(max(line.pause_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        for row in Text.from_ansi(line.printed).wrap(_CONSOLE, COLUMNS) or [Text()]:
            rows.append(_row(row, len(rows)))
            moments_s.append(at_s)
    whole_s = at_s + HELD_S
    frames = [_appearing(number, moment_s / whole_s) for number, moment_s in enumerate(moments_s)]
    width, height = round(2 * MARGIN + COLUMNS * CHARACTER), 2 * MARGIN + LINE * (len(rows) + 1)
    summary = next(
        (Text.from_ansi(line.printed).plain for line in lines if " wait" in line.printed), ""
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{escape(f"$ {command}: {summary}")}</title>\n'
        f"<style>\n{_style(command, whole_s)}{''.join(frames)}</style>\n"
        f'<rect class="paper edge" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="8"/>\n'
        f"{_prompt(command)}{''.join(rows)}</svg>\n"
    )


def _style(command: str, whole_s: float) -> str:
    light, dark = (
        "".join(f".{name}{{fill:{pair[theme]}}}" for name, pair in _COLOURS.items())
        for theme in (0, 1)
    )
    letters = len(command)
    typed, distance = 100 * TYPED_S / whole_s, letters * CHARACTER
    return (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre}.bold{font-weight:bold}\n"
        f".paper{{fill:#f6f8fa}}.edge{{stroke:#d1d9e0}}{light}\n"
        "@media (prefers-color-scheme:dark){"
        f".paper{{fill:#0d1117}}.edge{{stroke:#3d444d}}{dark}}}\n"
        f".line{{animation:{whole_s:.2f}s step-end infinite}}\n"
        f".typing{{animation:typing {whole_s:.2f}s infinite}}\n"
        f"@keyframes typing{{0%{{transform:none;animation-timing-function:steps({letters})}}"
        f"{typed:.2f}%,100%{{transform:translateX({distance:.0f}px)}}}}\n"
        "@media (prefers-reduced-motion:reduce)"
        "{.line{animation:none!important}.typing{display:none}}\n"
    )


def _appearing(number: int, share: float) -> str:
    return (
        f"#l{number}{{animation-name:a{number}}}"
        f"@keyframes a{number}{{0%{{opacity:0}}{100 * share:.2f}%,100%{{opacity:1}}}}\n"
    )


def _prompt(command: str) -> str:
    """The command, under a cover that moves away letter by letter."""
    y, after_prompt = MARGIN + LINE - 5, MARGIN + 2 * CHARACTER
    return (
        f'<text x="{MARGIN}" y="{y}"><tspan class="dim">$ </tspan>'
        f'<tspan class="plain bold">{escape(command)}</tspan></text>\n'
        f'<rect class="paper typing" x="{after_prompt}" y="{MARGIN - 2}" '
        f'width="{len(command) * CHARACTER + 4:.0f}" height="{LINE + 4}"/>\n'
    )


def _row(line: Text, number: int) -> str:
    y = MARGIN + LINE * (number + 2) - 5
    spans = "".join(
        f'<tspan class="{_classes(part.style or Style())}">{escape(part.text)}</tspan>'
        for part in line.render(_CONSOLE)
        if part.text
    )
    return f'<text id="l{number}" class="line" x="{MARGIN}" y="{y}">{spans}</text>\n'


def _classes(style: Style) -> str:
    colour = "dim" if style.dim else _colour(style.color)
    return f"{colour} bold" if style.bold else colour


def _colour(colour: Color | None) -> str:
    return "plain" if colour is None or colour.number is None else _BY_NUMBER[colour.number % 8]


@contextmanager
def _stuck_job(log: Path) -> Iterator[int]:
    """The launcher's process number, once rank 1 has had time to call its reward."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command += [f"--master_port={free_port()}", str(JOB), "--fault", "stuck", "--steps", "100"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as stream:
        launcher = subprocess.Popen(
            command, cwd=JOB.parent, env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
    try:
        while log.read_text(errors="replace").count("'loss'") < STEPS_BEFORE:
            if launcher.poll() is not None:
                raise SystemExit(f"the job ended: look into {log}")
            time.sleep(0.5)
        yield launcher.pid
    finally:
        # Its ranks have sessions of their own, and outlive a launcher that is killed.
        family = psutil.Process(launcher.pid)
        for process in [*family.children(recursive=True), family]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        launcher.wait()


def _attached(pid: int) -> tuple[int, list[Line]]:
    """The exit code of `attach`, and what it printed into a terminal."""
    command = [sys.executable, "-m", "grpo_doctor", "attach", str(pid)]
    environment = os.environ | {"COLUMNS": str(COLUMNS), "TERM": "xterm"}
    reading, writing = pty.openpty()
    process = subprocess.Popen(command, env=environment, stdout=writing, stderr=writing)
    os.close(writing)
    lines: list[Line] = []
    before_s = time.monotonic()
    # Without a writer a terminal ends with an error.
    with suppress(OSError), os.fdopen(reading, encoding="utf-8", newline="\n") as terminal:
        for text in terminal:
            now_s = time.monotonic()
            lines.append(Line(text.rstrip("\r\n"), now_s - before_s))
            before_s = now_s
    return process.wait(), lines


def main(arguments: Sequence[str]) -> int:
    """Writes the picture."""
    path = Path(arguments[0]) if arguments else ROOT / "docs" / "images" / "attach.svg"
    log = Path(tempfile.gettempdir()) / "attach_picture.log"
    with _stuck_job(log) as launcher:
        while (answer := _attached(launcher))[0] != STUCK:
            pass  # first it says slow, and names the rank already
    path.write_text(drawn("grpo-doctor attach", answer[1]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
