"""Verdicts on a job of which a launcher was seen, and no rank."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_doctor.hang.causes.missing_ranks import JOINING_S
from grpo_doctor.hang.model.hosts import commands
from grpo_doctor.hang.model.process.progress import TICKS_PER_SECOND
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item, Verdict
from grpo_doctor.hang.wording import seconds_text, sentence

_ENDPOINT = re.compile(r"--(?:rdzv[-_]endpoint|master[-_]addr)[= ](\S+)")
_FIX_HOSTS = Fix(
    "Start the job on the other hosts too, with the same --nnodes, --rdzv-id and rendezvous "
    "address; look whether they reach that address (nc -zv HOST PORT)."
)
_FIX_HERE = Fix("Look at the launcher's own output: what it waits for before it starts a rank.")


def launchers(scene: Scene) -> tuple[Actor, ...]:
    """The launchers of a job that has no rank; none where it has."""
    if scene.by_rank:
        return ()
    return tuple(actor for actor in scene.actors if actor.member.role == "launcher")


def not_started(scene: Scene, seen: Sequence[Actor]) -> Verdict:
    """No rank was started yet: after long without work of the launcher, none will be."""
    now_s = scene.evidence.looks[-1].at_ns / 1e9
    age_s = now_s - max(actor.member.started_ticks / TICKS_PER_SECOND for actor in seen)
    first = seen[0]
    stands = age_s > JOINING_S and not any(actor.motion.progresses for actor in seen)
    several = _other_hosts(scene) > 0
    return Verdict(
        state="stuck" if stands else "slow",
        cause="rank-missing" if several or stands else "",
        culprits=scene.evidence.job.ranks_missing if stands else (),
        confidence=0.8 if stands and several else 0.6,
        phase="init",
        summary=sentence(f"no rank has been started yet: {_waits(scene, first, age_s)}"),
        evidence=(
            Item("proc", None, f"no rank of this job is on {scene.evidence.job.host}"),
            Item("proc", None, f"pid {first.pid}, started {age_s:.0f} s ago: {_command(first)}"),
        ),
        fixes=(_FIX_HOSTS if several else _FIX_HERE,),
        confirm=commands(scene.evidence.job) if several else (f"py-spy dump --pid {first.pid}",),
    )


def _other_hosts(scene: Scene) -> int:
    """How many more hosts than were looked at the launcher was told of."""
    job = scene.evidence.job
    nodes = max((place.nodes or 0 for place in job.placements), default=0)
    nodes = nodes or (job.world_size or 0) // (job.local_ranks or job.world_size or 1)
    return max(0, nodes - max(1, len(job.placements)))


def _waits(scene: Scene, launcher: Actor, age_s: float) -> str:
    others = _other_hosts(scene)
    who = f"the launcher (pid {launcher.pid})"
    if not others:
        return f"{who} was started {seconds_text(age_s)} ago"
    endpoint = _ENDPOINT.search(_command(launcher))
    where = f" at the rendezvous {endpoint[1]}" if endpoint else ""
    hosts = "the other host" if others == 1 else f"{others} other hosts"
    return f"{who} has waited{where} for {hosts} for {seconds_text(age_s)}"


def _command(launcher: Actor) -> str:
    return launcher.member.command or launcher.member.name
