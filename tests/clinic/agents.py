"""Three scripted agents: each gets what any agent gets, and touches the run by commands alone.

`shell`: ps, py-spy, and reading the launch and the log, by rules that an engineer would
use. `commands`: attach, report and check. `mcp`: the same over the Model Context Protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.clinic import causes
from tests.clinic.opened import Opened
from tests.faults.attach import command
from tests.faults.baselines import by_top_frame, frames_of
from tests.faults.jobs import environment


@dataclass(frozen=True, slots=True)
class Answer:
    """`cause`: a key of the menu, or empty for "I don't know". `said`: on what it rests."""

    cause: str = ""
    ranks: tuple[int, ...] = ()
    said: str = ""


Agent = Callable[[Opened], Answer]


def _doctor(*words: str) -> dict[str, Any]:
    """What one of our commands says.

    Raises:
        ValueError: it printed no JSON.
    """
    _, out, err, _ = command(*words)
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        raise ValueError(err.strip()[-300:] or "no answer") from None
    return answer


def commands(run: Opened) -> Answer:
    """Attaches, records and reports, or checks; answers what the command says first."""
    if run.pid:
        return _of_attach(_doctor("attach", "--json", str(run.pid)))
    if run.gpus:
        words = ("--gpus", run.gpus, "--", *shlex.split(run.launch.read_text()))
        return _of_check(_doctor("check", "--json", *words))
    words = ("report", "--json", "--read-only", str(run.recording()))
    return _of_report(_doctor(*words), run.kind)


def mcp(run: Opened) -> Answer:
    """The tools attach, report and check of `grpo-doctor mcp`; a shell records the run."""
    if run.pid:
        return _of_attach(asyncio.run(_called("attach", pid=run.pid)))
    if run.gpus:
        launch = run.launch.read_text().strip()
        return _of_check(asyncio.run(_called("check", command=launch, gpus=run.gpus)))
    answer = asyncio.run(_called("report", recording=str(run.recording())))
    return _of_report(answer, run.kind)


async def _called(tool: str, **arguments: Any) -> dict[str, Any]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = ["-m", "grpo_doctor", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment())
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        result = await session.call_tool(tool, arguments)
        answer: dict[str, Any] = json.loads(result.content[0].text)
        return answer


def _of_attach(answer: dict[str, Any]) -> Answer:
    verdict = answer["verdict"]
    return Answer(verdict["class"], tuple(verdict["culprits"]), verdict["summary"])


def _of_report(answer: dict[str, Any], kind: str) -> Answer:
    """The first finding that can be what was asked about, by its rule or by its first fix."""
    rules = [finding["id"] for finding in answer["findings"]]
    for finding in answer["findings"]:
        lower_rate = [fix.get("knob") for fix in finding["fixes"]][:1] == ["train.learning_rate"]
        for cause in ["large-steps"] if lower_rate else causes.of_rules([finding["id"]]):
            if cause in causes.MENU[kind]:
                return Answer(cause, said=" ".join(rules))
    return Answer(said=" ".join(rules))


def _of_check(answer: dict[str, Any]) -> Answer:
    return Answer(causes.of_memory(answer["memory"]), said=answer["headline"])


def shell(run: Opened) -> Answer:
    """What ps, py-spy and reading give."""
    if run.pid:
        return _stopped_at(run.pid)
    if run.gpus:
        return Answer(_by_arithmetic(run.launch.read_text()), said="bytes for each weight")
    log, samples, busy = _watched(run)
    return _by_numbers(log) if run.kind == "not learning" else _by_samples(run, log, samples, busy)


# The innermost frames that have the word say so.
_WAITS = (
    ("reward", "reward-blocked"), ("subprocess", "child-stuck"), ("lock", "thread-deadlock"),
    ("dataloader", "dataload-blocked"), ("engine", "rollout-engine-stalled"),
    ("read", "storage-blocked"), ("distributed_c10d", "collective-mismatch"),
)  # fmt: skip


def _stopped_at(launcher: int) -> Answer:
    """Blames the rank that is elsewhere than most; the words of its stack are the cause."""
    pids = dict(enumerate(_below(launcher)))
    blamed = by_top_frame(pids).blamed
    for rank in blamed:
        state = _ps("-o", "stat=", "-p", str(pids[rank])).strip()
        if state.startswith("T"):
            return Answer("rank-stopped", blamed, f"ps: {state}")
        stack = " ".join(reversed(_stack(pids[rank]))).lower()
        places = {cause: stack.rfind(word) for word, cause in _WAITS}
        if max(places.values()) >= 0:
            return Answer(max(places, key=places.__getitem__), blamed, stack[-200:])
    return Answer("unknown", blamed)


def _ps(*words: str) -> str:
    return subprocess.run(["ps", *words], capture_output=True, text=True, check=False).stdout


def _below(pid: int) -> list[int]:
    return sorted(int(word) for word in _ps("-o", "pid=", "--ppid", str(pid)).split())


def _stack(pid: int) -> list[str]:
    """Places of the main thread, innermost first: `file:function`."""
    return [f"{frame['filename']}:{frame['name']}" for frame in frames_of(pid) or ()]


def _watched(run: Opened) -> tuple[str, list[tuple[int, list[str]]], float]:
    """Starts the job; the log, samples of (rank, stack) while it steps, and the median of how many
    processes run or want to, by ps."""
    samples: list[tuple[int, list[str]]] = []
    log, running = run.folder / "shell.log", [0]
    with log.open("wb") as file:
        job = subprocess.Popen(
            ["bash", run.launch.name], cwd=run.folder, env=environment(), stdout=file,
            stderr=file, start_new_session=True,
        )  # fmt: skip
        try:
            while job.poll() is None:
                for rank, pid in enumerate(_below(job.pid)):
                    stack = _stack(pid)
                    if "step  2/" in log.read_text(errors="replace"):
                        samples.append((rank, stack))
                        running.append(_ps("-eo", "stat=").count("R"))
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    return log.read_text(errors="replace"), samples, statistics.median(running)


_PLACES = (
    ("utils/checkpoint.py", "recomputation"), ("dataloader", "loading"), ("stage3", "sharding"),
    ("save", "checkpoints"), ("reward", "reward"), ("gc.", "garbage"),
)  # fmt: skip
_PART = 0.2  # of the samples, from which a place is worth naming


def _by_samples(
    run: Opened, log: str, samples: Sequence[tuple[int, list[str]]], running: float
) -> Answer:
    """The place of most samples, by words of the stack."""
    if running > 2 * (os.cpu_count() or 1):
        return Answer("other-programs", said=f"{running:g} processes run")
    found: Counter[str] = Counter()
    of_rank: Counter[int] = Counter()
    for rank, stack in samples:
        text = " ".join(stack).lower()
        cause = next((cause for word, cause in _PLACES if word in text), "")
        found[cause] += 1
        of_rank[rank] += cause == "reward"
    said = f"{dict(found)} {dict(of_rank)}"
    del found[""]
    if not found or found.most_common(1)[0][1] < _PART * len(samples):
        return Answer(said=said)
    cause = found.most_common(1)[0][0]
    if cause == "reward":
        cause = _kind_of_reward(run, log, of_rank)
    return Answer(cause, said=said)


def _kind_of_reward(run: Opened, log: str, of_rank: Counter[int]) -> str:
    seconds = [float(text) for text in re.findall(r"\| ([\d.]+) s$", log, re.MULTILINE)]
    if len(re.findall(r"rewards\.py:", run.launch.read_text())) > 1:
        return "rewards-in-turn"
    if seconds and max(seconds) > 4 * statistics.median(seconds):
        return "hiccups"
    if max(of_rank.values()) > 3 * min(of_rank[0], of_rank[1]):
        return "one-rank"
    return "reward"


def _by_numbers(log: str) -> Answer:
    """The last lines of the log, read as an engineer reads them."""
    spread = [float(text) for text in re.findall(r"\+-([\d.]+)", log)]
    clipped = [int(text) for text in re.findall(r"\((\d+)% clipped", log)]
    ratio = [float(text) for text in re.findall(r"kl (-?[\d.]+)", log)]
    length = [float(text) for text in re.findall(r"length ([\d.]+)", log)]
    reward = [float(text) for text in re.findall(r"reward (-?[\d.]+) ", log)]
    said = log[-200:]
    if spread and statistics.fmean(spread[-5:]) < 0.05:
        return Answer("equal-rewards", said=said)
    if not reward or "nan" in log:
        return Answer("missing-rewards", said=said)
    if ratio and max(ratio[-5:]) > 1:
        return Answer("large-steps", said=said)
    if clipped and statistics.fmean(clipped[-5:]) > 50:
        rises = len(length) > 5 and length[-1] > 1.5 * length[0]
        return Answer("paid-length" if rises else "cut-off", said=said)
    return Answer(said=said)


def _by_arithmetic(launch: str) -> str:
    """Sixteen bytes a weight, divided by the ranks where ZeRO-3 or FSDP is named."""
    if not re.search(r"zero_?3|zero_stage 3|fsdp", launch, re.IGNORECASE):
        return "states"
    return "logits" if "gradient_checkpointing" in launch else "activations"


AGENTS: dict[str, Agent] = {"shell": shell, "commands": commands, "mcp": mcp}
