"""Training in a single process, which has neither RANK nor process group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.frameworks import framework_by_command, framework_by_script
from grpo_doctor_probes.discover.patience import unless_blocked
from grpo_doctor_probes.discover.ranks import Cast, may_train
from grpo_doctor_probes.discover.tree import Tree

_PATIENCE_S = 1.0


def find_alone(
    cast: Cast,
    candidates: Mapping[int, Candidate],
    tree: Tree,
    proc: Path,
    pids: Sequence[int],
) -> Cast:
    """`cast` with rank 0 for every process that trains alone.

    One that the user names (or a parent of whose she names) only has to have torch; others must
    belong to a launcher, or run a framework for GRPO: not every process with torch is training.
    """
    named = {above for pid in pids for above in (pid, *tree.ancestors(pid))}
    found: dict[int, int | None] = {}
    for pid, one in candidates.items():
        if not one.torch or pid in _trainers(cast) or not may_train(one, candidates, tree):
            continue
        if tree.nearest(pid, {**candidates, **cast.ranks}) in _trainers(cast):
            continue
        if pid in named or _launched(one, candidates) or _is_training(proc, one):
            found[pid] = 0
    tops = {pid: rank for pid, rank in found.items() if tree.nearest(pid, found) is None}
    return replace(cast, ranks={**cast.ranks, **tops})


def _trainers(cast: Cast) -> set[int]:
    return cast.ranks.keys() | cast.launchers | cast.lost.keys()


def _launched(one: Candidate, candidates: Mapping[int, Candidate]) -> bool:
    parent = candidates.get(one.process.parent)
    return parent is not None and parent.kind == "launcher"


def _is_training(proc: Path, one: Candidate) -> bool:
    if framework_by_command([one.process]) != "unknown":
        return True
    read = partial(framework_by_script, proc, one.process)
    return unless_blocked(_PATIENCE_S, read, "unknown") != "unknown"
