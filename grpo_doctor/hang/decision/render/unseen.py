"""What could not be seen, and of whom: a rank, a process, a file."""

from __future__ import annotations

from grpo_doctor.hang.model import gpus
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.wording import ranks_text

_FILE = "file:"
_NVML = "The driver hangs: `timeout 10 nvidia-smi` does so too. Look for an Xid in dmesg."


def unseen(scene: Scene) -> tuple[tuple[str, str], ...]:
    """Each problem of the visit and of the recordings once, with its remedy."""
    ranks: dict[tuple[str, str], list[int]] = {}
    others: list[tuple[str, str]] = []
    recorders = {problem.what for problem in scene.recordings.problems}
    for one in scene.evidence.problems:
        actor = scene.by_pid.get(one.pid) if one.pid is not None else None
        if one.what in recorders:
            continue  # said below, with its rank
        if actor is not None and actor.member.role == "rank" and actor.rank is not None:
            ranks.setdefault((one.what, one.remedy), []).append(actor.rank)
        else:
            others.append((_of_process(scene, one.pid, one.what), one.remedy))
    for problem in scene.recordings.problems:
        if problem.source.startswith(_FILE):
            file = problem.source.removeprefix(_FILE)
            others.append((f"{file}: {problem.what}", problem.remedy))
        elif problem.rank is not None:
            ranks.setdefault((problem.what, problem.remedy), []).append(problem.rank)
        else:
            others.append((problem.what, problem.remedy))
    others += [(item.text, _NVML) for item in gpus.judge(scene.evidence).silence]
    named = [
        (f"{ranks_text(tuple(sorted(set(who))))}: {what}", remedy)
        for (what, remedy), who in ranks.items()
    ]
    return tuple(dict.fromkeys((*others, *named)))


def _of_process(scene: Scene, pid: int | None, what: str) -> str:
    """Numbers of several hosts' processes are not their own: there none is said."""
    several = len(scene.evidence.job.placements) > 1
    return what if pid is None or several or str(pid) in what else f"pid {pid}: {what}"
