"""Verdicts in words: the first line that a user reads, and what stands under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.wording import busy_class, in_phase, stack_item, still_item
from grpo_doctor.hang.eta import seconds_left
from grpo_doctor.hang.known_code import Purpose
from grpo_doctor.hang.scene import Actor, Scene
from grpo_doctor.hang.stall import Stall
from grpo_doctor.hang.verdict import Fix, Item, State, Verdict
from grpo_doctor.hang.wording import bytes_text, ranks_text, seconds_text, sentence

_WORK: dict[Purpose, str] = {
    "checkpoint": "writes a checkpoint",
    "compile": "compiles",
    "load": "loads a model",
    "download": "downloads",
    "evaluate": "evaluates",
    "generate": "generates",
    "offload": "moves weights",
    "reward": "computes rewards",
    "dataload": "loads data",
    "train": "trains",
    "logprob": "computes log-probabilities",
}
_PLURALS = {"is": "are", "has": "have", "does": "do", "was": "were"}


def healthy(scene: Scene) -> Verdict:
    """Everything gets on."""
    count = len(scene.by_rank)
    moving = sum(1 for one in scene.by_rank.values() if one.motion.kind != "still")
    waited = scene.patience.waited_s or 0.0
    rest = f", the others have waited for {seconds_text(waited)}" if moving < count else ""
    ranks = f"{moving} of {count} ranks" if moving < count else f"all {count} ranks"
    text = f"the job is healthy: {ranks} got on between two looks{rest}"
    phases = sorted({one.phase for one in scene.by_rank.values() if one.phase})
    return Verdict(
        state="healthy",
        cause="",
        culprits=(),
        victims=(),
        confidence=0.95 if moving else 0.6,
        phase=phases[0] if len(phases) == 1 else None,
        summary=sentence(text),
        evidence=tuple(_motion_item(one) for one in list(scene.by_rank.values())[:8]),
    )


def ended() -> Verdict:
    """No rank is left, and none of them is known to have failed."""
    return Verdict(
        state="healthy",
        cause="",
        culprits=(),
        victims=(),
        confidence=0.6,
        phase=None,
        summary="The job ended while it was looked at.",
        confirm=("Its log's last lines say whether it came to its end in order.",),
    )


def slow_work(scene: Scene, stall: Stall) -> Verdict:
    """Some ranks wait while others work: slow, not stuck."""
    workers = sorted(stall.working, key=lambda one: one.rank if one.rank is not None else -1)
    ranks = tuple(one.rank for one in workers if one.rank is not None)
    victims = tuple(sorted(rank for rank, one in scene.by_rank.items() if one.waits))
    first = workers[0]
    waiting = f"; {ranks_text(victims)} {_verb(victims, 'waits')}" if victims else ""
    since = scene.patience.waited_s
    for_s = f" for {seconds_text(since)}" if victims and since else ""
    doing = f"{_doing(first)}{in_phase(first)}{_rate(first)}"
    left_s = seconds_left(first.pid, first.long_work, scene.evidence.logs)
    left = f", will take about {seconds_text(left_s)}" if left_s is not None else ""
    held_up = bool(victims) and first.long_work is None and scene.patience.unusual()
    return Verdict(
        state="slow",
        cause=busy_class(first) if held_up else "",
        culprits=ranks,
        victims=victims,
        confidence=0.9,
        phase=first.phase,
        summary=sentence(
            f"slow, not stuck: {ranks_text(ranks)} {_conjugated(doing, len(ranks))}{left}"
            f"{waiting}{for_s}"
        ),
        evidence=tuple(i for one in workers[:4] for i in (_motion_item(one), stack_item(one))),
        confirm=("Look again in a minute: a rank at work will stand elsewhere.",),
    )


def undecided(scene: Scene, stall: Stall) -> Verdict:
    """Something stands still and the evidence does not say why."""
    patience = scene.patience
    unusual = patience.unusual_for_work() if scene.elsewhere else patience.unusual()
    suspects = [one for one in stall.suspects if not one.motion.progresses]
    if scene.all_spin:
        return _on_gpus(scene)
    ranks = tuple(one.rank for one in suspects if one.rank is not None)
    waits = scene.patience.text()
    most = list(scene.by_rank.values())
    chosen = (suspects or most)[:3]
    everyone = not suspects and len({one.place.operation for one in most}) == 1
    where = (
        f"all ranks stand in {most[0].place.operation}"
        if everyone and most
        else "no rank stands out"
    )
    who = f"{ranks_text(ranks)} {_verb(ranks, 'does')} not move" if ranks else where
    return Verdict(
        state="stuck" if unusual else "slow",
        cause="unknown",
        culprits=ranks,
        victims=tuple(sorted(rank for rank, one in scene.by_rank.items() if one.waits)),
        confidence=0.3,
        phase=next((one.phase for one in chosen if one.phase), None),
        summary=sentence(
            f"{who}, and what was seen does not say why"
            f"{f'; waiting for {waits}' if waits else ''}{'' if unusual else ', not yet unusual'}"
        ),
        evidence=tuple(
            item
            for one in chosen
            for item in (still_item(one), stack_item(one), *_native_items(one))
        ),
        confirm=tuple(f"py-spy dump --native --pid {one.pid}" for one in chosen[:1]),
    )


def _on_gpus(scene: Scene) -> Verdict:
    """Every rank waits for its GPU, and no recorder says whether for a collective."""
    most = list(scene.by_rank.values())
    return Verdict(
        state="slow",
        cause="unknown",
        culprits=(),
        victims=(),
        confidence=0.3,
        phase=next((one.phase for one in most if one.phase), None),
        summary=sentence(
            "all ranks wait for their GPUs, each at one line of its code, which is a long "
            "computation or a collective that does not end; no flight recorder tells which"
        ),
        evidence=tuple(item for one in most[:3] for item in (_motion_item(one), stack_item(one))),
        confirm=("nvidia-smi dmon -s pu -c 10  # a hang is 100 % busy at low, flat power",),
        fixes=(Fix("Start the next run with TORCH_FR_BUFFER_SIZE=2000 (torch before 2.11)."),),
    )


def _native_items(actor: Actor) -> tuple[Item, ...]:
    """Its C and C++ frames, where they were looked at."""
    threads = actor.native.threads if actor.native is not None else ()
    lines = [frame.function for thread in threads[:1] for frame in thread.frames[:8]]
    return (Item("native stack", actor.rank, " < ".join(lines)),) if lines else ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was decided about a root cause. `others` are further causes that were found."""

    root: Candidate
    state: State
    victims: tuple[int, ...]
    confidence: float
    others: tuple[Candidate, ...] = ()


def judged(scene: Scene, judgement: Judgement) -> Verdict:
    """The verdict that a root cause gives."""
    root, state, victims = judgement.root, judgement.state, judgement.victims
    waiting = _waiting(scene, victims, len(root.culprits))
    said = root.whole or (
        f"{ranks_text(root.culprits)} {_conjugated(root.reason, len(root.culprits))}"
        if root.culprits
        else root.reason
    )
    waits = scene.patience.text()
    soft = ""
    if state == "slow":
        soft = f" (waiting for {waits}, not yet unusual)" if waits else " (not yet unusual)"
    also = [
        Item("also", rank, f"{ranks_text((rank,))} {one.reason}")
        for one in judgement.others[:3]
        for rank in one.culprits[:1]
    ]
    pause = (Item("history", None, f"waiting for {waits}"),) if waits else ()
    return Verdict(
        state=state,
        cause=root.cause,
        culprits=root.culprits,
        victims=victims,
        confidence=judgement.confidence,
        phase=root.phase,
        summary=sentence(f"{said}{waiting}{soft}"),
        evidence=(*root.evidence, *pause, *also),
        confirm=root.confirm,
        fixes=root.fixes,
    )


def _waiting(scene: Scene, victims: tuple[int, ...], culprits: int) -> str:
    if not victims:
        return ""
    operations = [scene.by_rank[rank].place.operation for rank in victims if rank in scene.by_rank]
    known = sorted({name for name in operations if name})
    where = f" in {known[0]}" if len(known) == 1 else ""
    whom = "them" if culprits > 1 else "it"
    return f"; {ranks_text(victims)} {_verb(victims, 'waits')} for {whom}{where}"


def _verb(ranks: Sequence[int], singular: str) -> str:
    return _conjugated(singular, len(ranks))


def _conjugated(text: str, count: int) -> str:
    """The sentence's first word, a verb in the third person, for so many ranks."""
    if count <= 1:
        return text
    verb, space, rest = text.partition(" ")
    plural = _PLURALS.get(verb) or (verb.removesuffix("s"))
    return f"{plural}{space}{rest}"


def _doing(actor: Actor) -> str:
    purpose = actor.long_work or actor.place.purpose
    return _WORK.get(purpose, "works") if purpose is not None else "works"


def _rate(actor: Actor) -> str:
    if actor.motion.io_bytes < 1_000_000 or actor.motion.seconds <= 0:
        return ""
    return f", {bytes_text(actor.motion.io_bytes)} in {seconds_text(actor.motion.seconds)}"


def _motion_item(actor: Actor) -> Item:
    one = actor.motion
    return Item(
        "proc",
        actor.rank,
        f"pid {actor.pid} {one.kind}: {one.cpu_share:.0%} of a core, woke {one.wakes} times, "
        f"{bytes_text(one.io_bytes)} read and written in {seconds_text(one.seconds)}",
    )
