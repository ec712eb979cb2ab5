"""What a document has next to its verdict: layout, settings, outlook, ranks, graph and stacks.

The layout is where ranks are in TP, PP, DP, CP and EP. Recorded process groups show it: Megatron
describes them, torch's device meshes call them `mesh_tp`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Any

import msgspec

from grpo_doctor import knobs
from grpo_doctor.hang.catalogue import BY_NAME
from grpo_doctor.hang.dumps.model import GroupSeen, Recordings
from grpo_doctor.hang.model import nodes
from grpo_doctor.hang.model.nodes import RankNode, ResourceNode, host_of, name_of, number_of
from grpo_doctor.hang.model.process.progress import HALTED
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import Edge, Item, Node, Problem, RankState, StackGroup, Verdict
from grpo_doctor.hang.wording import (
    awaited_text,
    call_text,
    ranks_text,
    runs,
    seconds_text,
    shorten,
)
from grpo_doctor_probes.evidence import Job

_MOST = 4  # culprits whose places are said
# What to set a knob to when it is a fix for a hang.
_VALUES: dict[str, Any] = {
    "dataload.num_workers": 0,
    "offload.optimizer": False,
    "offload.gc_collect": False,
    "checkpoint.save_only_model": True,
    "vllm.gpu_memory_utilization": 0.6,
}
_TIMEOUT = "run.collective_timeout_s"
_FILE = "file:"
_NVML = "The driver hangs: `timeout 10 nvidia-smi` hangs too. Look for an Xid in dmesg."


def with_layout(view: JobView, verdict: Verdict) -> Verdict:
    """The verdict with the culprits' places; unchanged where the job has no axes."""
    if not verdict.culprits:
        return verdict
    layout = coordinates(known_groups(view.recordings), len(view.world))
    axes = {
        rank: ", ".join(f"{axis} {at}" for axis, at in layout[rank].items())
        for rank in verdict.culprits[:_MOST]
        if rank in layout
    }
    if not axes:
        return verdict
    items = (Item("layout", rank, f"rank {rank} = {text}") for rank, text in axes.items())
    summary = verdict.summary
    if len(verdict.culprits) == 1:  # `Rank 9 (TP 1, PP 0) is stopped ...`, where it is first named
        ((rank, text),) = axes.items()
        summary = re.sub(rf"\b([Rr]ank {rank})\b", rf"\1 ({text})", summary, count=1)
    evidence = (*verdict.evidence, *items)
    return msgspec.structs.replace(verdict, summary=summary, evidence=evidence)


def with_timeout(view: JobView, verdict: Verdict) -> Verdict:
    """The verdict with when the process group's time-out ends the wait, and the option that sets
    it; only of live jobs in which an operation is open.
    """
    live = [recording for recording in view.recordings.ranks if not recording.from_file]
    open_ones = [
        (entry.created_ns / 1e9 + entry.timeout_s - recording.at_unix_ns / 1e9, entry.timeout_s)
        for recording in live
        for entry in recording.entries
        if not entry.done and entry.created_ns and entry.timeout_s and recording.at_unix_ns
    ]
    if verdict.state not in ("slow", "stuck") or not open_ones:
        return verdict
    left_s, timeout_s = min(open_ones)
    ends = f"ends the job in {seconds_text(left_s)}" if left_s > 0 else "has passed"
    longer = _spelled(view.evidence.job, _TIMEOUT, int(2 * timeout_s))
    option = longer or "init_process_group(timeout=...)"
    text = f"the process group's time-out of {seconds_text(timeout_s)} {ends}; longer: {option}"
    return msgspec.structs.replace(
        verdict, evidence=(*verdict.evidence, Item("time-out", None, text))
    )


def with_spelled_fixes(verdict: Verdict, job: Job) -> Verdict:
    """Return the verdict with each fix's setting as this job takes it."""
    spelled = [
        msgspec.structs.replace(fix, spelling=_spelled(job, fix.knob, _VALUES[fix.knob]))
        if fix.spelling is None and fix.knob in _VALUES
        else fix
        for fix in verdict.fixes
    ]
    return msgspec.structs.replace(verdict, fixes=tuple(spelled))


def _spelled(job: Job, knob: str, value: Any) -> str | None:
    """As an option under the framework's own name; in Python for a script of TRL without any."""
    if job.framework not in knobs.FRAMEWORKS:
        return None
    commands = [member.command for member in job.ranks() if member.command]
    if job.framework != "trl" or not commands or any(" --" in command for command in commands):
        return knobs.spell(job.framework, None, knob, value)
    argument = knobs.spell(job.framework, None, knob, value, "python")
    return argument and f"{argument} in GRPOConfig(...)"


def with_outlook(verdict: Verdict, of_case: str = "") -> Verdict:
    """The verdict with what this case, else its class, says of the running job; only where nothing
    moves.
    """
    entry = BY_NAME.get(verdict.cause)
    if entry is None or verdict.state not in ("stuck", "dead"):
        return verdict
    return msgspec.structs.replace(verdict, can_go_on=of_case or entry.can_go_on)


def unseen_parts(view: JobView) -> tuple[Problem, ...]:
    """Each problem of the visit and of the recordings once, with its remedy."""
    ranks: dict[tuple[str, str], list[int]] = {}
    unranked: list[tuple[str, str]] = []
    recorders = {problem.what for problem in view.recordings.problems}
    several = len(view.evidence.job.placements) > 1  # hosts, whose PIDs are translated
    for problem in view.evidence.problems:
        proc = view.by_pid.get(problem.pid) if problem.pid is not None else None
        if problem.what in recorders:
            continue  # said below, with its rank
        if proc is not None and proc.member.role == "rank" and proc.rank is not None:
            ranks.setdefault((problem.what, problem.remedy), []).append(proc.rank)
        elif problem.pid is None or several or str(problem.pid) in problem.what:
            unranked.append((problem.what, problem.remedy))
        else:
            unranked.append((f"pid {problem.pid}: {problem.what}", problem.remedy))
    for unread in view.recordings.problems:
        if unread.source.startswith(_FILE):
            file = unread.source.removeprefix(_FILE)
            unranked.append((f"{file}: {unread.what}", unread.remedy))
        elif unread.rank is not None:
            ranks.setdefault((unread.what, unread.remedy), []).append(unread.rank)
        else:
            unranked.append((unread.what, unread.remedy))
    unranked += [(item.text, _NVML) for item in view.gpus.silence]
    unranked += [(note, "") for note in view.evidence.job.notes]
    if view.evidence.host is not None and view.evidence.host.kernel_problem:
        unranked.append((view.evidence.host.kernel_problem, ""))
    ranked = [
        (f"{ranks_text(tuple(sorted(set(affected))))}: {text}", remedy)
        for (text, remedy), affected in ranks.items()
    ]
    every = dict.fromkeys((*unranked, *ranked))
    return tuple(Problem(what, remedy) for what, remedy in every)


MOST_FRAMES = 24


def rank_states(view: JobView, graph: Graph) -> tuple[RankState, ...]:
    """Return all ranks, missing ones included, then the other processes of the job."""
    if not view.evidence.looks:
        return tuple(_recorded(view, rank) for rank in view.seen)
    shown = [proc for proc in view.procs if proc.member.role != "launcher" or proc.cannot_run]
    states = [_state(view, graph, proc) for proc in shown]
    present = set(view.by_rank)
    states += [
        RankState(rank, None, "rank", "missing", "", "")
        for rank in view.evidence.job.ranks_missing
        if rank not in present
    ]
    states.sort(key=lambda s: (s.role != "rank", s.rank is None, s.rank or 0))
    return tuple(states)


def _recorded(view: JobView, rank: int) -> RankState:
    wait = next((wait for wait in view.matching.waits if wait.rank == rank), None)
    hung = any(b.rank == rank and b.reason == "device-hung" for b in view.matching.blame)
    return RankState(
        rank=rank,
        pid=None,
        role="rank",
        state="unknown" if wait is None else "waiting",
        where="" if wait is None else f"{wait.operation} #{wait.sequence}",
        waiting_for="its own GPU" if hung else ranks_text(wait.on) if wait is not None else "",
    )


def _state(view: JobView, graph: Graph, proc: Process) -> RankState:
    targets = graph.needed(proc.node)
    if proc.cannot_run:
        state = HALTED[proc.activity.kind]
    elif proc.activity.progresses:
        state = "running"
    elif proc.waits or targets:
        state = "waiting"
    elif proc.activity.kind == "polling":
        state = "running"
    else:
        state = "blocked" if proc.activity.kind == "still" else "unknown"
    return RankState(
        rank=proc.rank,
        pid=proc.number,
        role=proc.member.role,
        state=state,
        where=proc.place.text(),
        waiting_for="" if proc.cannot_run else _waiting_for(view, graph, proc),
        host=proc.member.host,
    )


def _waiting_for(view: JobView, graph: Graph, proc: Process) -> str:
    links = graph.out(proc.node)
    needed = graph.needed(proc.node)
    ranks, resources = _parted(needed)
    labels = [_node(view, node, guilty=False).label for node in resources[:3]]
    parts = [text for text in (ranks, *labels) if text]
    if not parts:
        hold = proc.hold
        if proc.coroutine is not None and (hold is None or hold.fd < 0):
            return awaited_text(proc.coroutine.what).removeprefix("awaits ")
        return call_text(hold.kind, hold.target) if hold is not None else ""
    label = next((link.label for link in links if link.label and ranks), "")
    return f"{', '.join(parts)}{f', in {label}' if label else ''}"


@lru_cache(maxsize=16)
def _parted(needed: frozenset[nodes.Node]) -> tuple[str, tuple[nodes.Node, ...]]:
    """The ranks in words, and the rest; hundreds of ranks may wait for the same hundreds."""
    ranks = sorted(node.rank for node in needed if isinstance(node, RankNode))
    resources = [node for node in needed if not isinstance(node, RankNode)]
    return ranks_text(ranks), tuple(sorted(resources, key=name_of))


def nodes_of(view: JobView, graph: Graph, guilty: frozenset[nodes.Node]) -> tuple[Node, ...]:
    """All ranks, and whatever else is in a wait."""
    drawn: set[nodes.Node] = {RankNode(rank) for rank in view.world} | guilty
    drawn |= {link.source for link in graph.links}
    drawn = drawn.union(*{link.targets for link in graph.links})
    ordered = sorted(drawn, key=lambda node: node.order)
    return tuple(_node(view, node, guilty=node in guilty) for node in ordered)


def _node(view: JobView, node: nodes.Node, *, guilty: bool) -> Node:
    if isinstance(node, RankNode):
        return Node(name_of(node), f"rank {node.rank}", "rank", guilty)
    if isinstance(node, ResourceNode):
        return Node(name_of(node), shorten(node.name, 40), node.kind, guilty)
    proc = view.by_pid.get(node.pid)
    if proc is None:
        host = next((p.on_host for p in view.procs if host_of(p.pid) == host_of(node.pid)), "")
        return Node(name_of(node), f"pid {number_of(node.pid)}{host}", "other", guilty)
    return Node(name_of(node), f"{proc.member.role} ({proc.name})", proc.member.role, guilty)


def edges_of(graph: Graph) -> tuple[Edge, ...]:
    """The waits, each once. Ranks that wait for the same others are one edge: of a thousand ranks
    in two camps there are half a million waits.
    """
    waits: dict[tuple[nodes.Node, str, str], frozenset[nodes.Node]] = {}
    for link in graph.links:
        key = link.source, link.kind, shorten(link.label, 40)
        targets = waits.get(key)
        waits[key] = link.targets if targets is None else targets | link.targets
    alike: dict[tuple[frozenset[nodes.Node], str, str], set[nodes.Node]] = {}
    for (source, kind, text), needed in waits.items():
        alike.setdefault((needed, kind, text), set()).add(source)
    merged: dict[tuple[str, str, str], set[nodes.Node]] = {}
    for (needed, kind, text), sources in alike.items():
        for end in _ends(needed):
            merged.setdefault((end, kind, text), set()).update(sources)
    return tuple(
        Edge(source, target, kind, text)
        for (target, kind, text), waiting in sorted(merged.items())
        for source in _ends(waiting)
    )


def _ends(drawn: Set[nodes.Node]) -> tuple[str, ...]:
    ranks = [node.rank for node in drawn if isinstance(node, RankNode)]
    resources = sorted(name_of(node) for node in drawn if not isinstance(node, RankNode))
    return (f"rank:{runs(ranks, ',')}", *resources) if ranks else tuple(resources)


def stack_groups(view: JobView) -> tuple[StackGroup, ...]:
    """Return groups of processes whose main threads are in the same functions, largest last."""
    groups: dict[tuple[str, ...], list[Process]] = {}
    for proc in view.procs:
        if proc.place.frames:
            frames = proc.place.frames[:MOST_FRAMES]
            key = tuple(f"{frame.function} ({frame.file}:{frame.line})" for frame in frames)
            groups.setdefault(key, []).append(proc)
    made = [_group(lines, procs) for lines, procs in groups.items()]
    return tuple(sorted(made, key=lambda group: (len(group.pids), group.ranks, group.pids)))


def _group(frames: tuple[str, ...], procs: list[Process]) -> StackGroup:
    ranks = tuple(sorted({a.rank for a in procs if a.member.role == "rank" and a.rank is not None}))
    roles = sorted({a.member.role for a in procs if a.member.role != "rank"})
    title = ", ".join(text for text in (ranks_text(ranks), *roles) if text)
    pids = tuple(sorted(a.number for a in procs))
    place = procs[0].place.text()
    return StackGroup(ranks, pids, f"{title}: {place}" if title else place, frames)


# In the order in which they are said.
AXES = ("TP", "PP", "DP", "CP", "SP", "EP", "ETP", "rollout TP")
_WITH_CP = "DP with CP"
# Megatron's parallel_state.py, and the dimensions of device meshes in FSDP2, verl, torchtitan, TRL.
_BY_DESCRIPTION = {
    "TENSOR_MODEL_PARALLEL_GROUP": "TP",
    "PIPELINE_MODEL_PARALLEL_GROUP": "PP",
    "DATA_PARALLEL_GROUP": "DP",
    "DATA_PARALLEL_GROUP_WITH_CP": _WITH_CP,
    "CONTEXT_PARALLEL_GROUP": "CP",
    "EXPERT_MODEL_PARALLEL_GROUP": "EP",
    "EXPERT_TENSOR_PARALLEL_GROUP": "ETP",
}
_BY_DIMENSION = {
    **dict.fromkeys(("tp", "tensor_parallel"), "TP"),
    **dict.fromkeys(("pp", "pipeline"), "PP"),
    **dict.fromkeys(("dp", "ddp", "data_parallel", "fsdp", "dp_shard"), "DP"),
    **dict.fromkeys(("sp", "sequence_parallel"), "SP"),
    "dp_shard_cp": _WITH_CP,
    "cp": "CP",
    "ep": "EP",
    "infer_tp": "rollout TP",
}
_MESH = re.compile(r"(?:device_)?mesh_(\w+)")
Places = dict[str, int]


def known_groups(recordings: Recordings) -> tuple[GroupSeen, ...]:
    """The groups that any rank knows: none knows all."""
    return tuple({group: None for recording in recordings.ranks for group in recording.groups})


def coordinates(groups: Iterable[GroupSeen], world: int) -> dict[int, Places]:
    """The place of each of `world` ranks on each axis of more than one: `{9: {"TP": 1, "PP": 0}}`.
    Some of the groups may be missing.
    """
    lists: defaultdict[str, dict[tuple[int, ...], None]] = defaultdict(dict)
    for group in groups:
        mesh = _MESH.fullmatch(group.description)
        dimension = (mesh[1] if mesh else group.description).lower()
        axis = _BY_DESCRIPTION.get(group.description) or _BY_DIMENSION.get(dimension)
        if axis is not None and len(group.ranks) > 1:
            lists[axis][group.ranks] = None
    # Within a group over both, CP varies faster than DP.
    cp_size = max(map(len, lists.get("CP", ())), default=1)
    layout: defaultdict[int, Places] = defaultdict(dict)
    for axis in AXES:
        joint = axis == "DP" and axis not in lists
        members = lists.get(_WITH_CP if joint else axis, {})
        places = _places(list(members), world) if members else {}
        if joint:
            places = {rank: at // cp_size for rank, at in places.items()}
        for rank, at in places.items() if any(places.values()) else ():
            layout[rank][axis] = at
    return dict(layout)


def _places(groups: Sequence[tuple[int, ...]], world: int) -> dict[int, int]:
    """Return the place of each rank in its group. Of groups in no file, by the others' stride.

    Nothing where a rank is at two places, as where two meshes have a dimension of the same name.
    """
    places: dict[int, int] = {}
    for members in groups:
        for at, rank in enumerate(members):
            if places.setdefault(rank, at) != at:
                return {}
    size = len(groups[0])
    if len(places) < world and all(len(members) == size for members in groups):
        stride = groups[0][1] - groups[0][0]
        regular = stride > 0 and all(rank // stride % size == at for rank, at in places.items())
        if regular and world % (stride * size) == 0:
            return {rank: rank // stride % size for rank in range(world)}
    return places
