"""NCCL's watchdog text: which ranks wait in which collective, and who is behind."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from grpo_doctor.diagnose.model import Certainty, Finding, line_at

# The rank in front of a line is the job's, that in its text the group's.
_TIMEOUT = re.compile(
    r"(?:\[rank(?P<rank>\d{1,18})\]:[^\n]{0,100}?)?(?:\[Rank (?P<of_group>\d{1,18})\] )?"
    r"Watchdog caught collective operation timeout:\s+WorkNCCL\((?:SeqNum=(?P<seq>\d{1,18}), )?"
    r"(?:\.\.\., )?"
    r"OpType=(?P<op>\w+),(?: NumelIn=(?P<count>\d{1,18})[^)]{0,200}?)? ?Timeout\(ms\)="
    r"(?P<ms>\d{1,18})\)(?:[^\n]*\n[^\n]{0,120}PG (?:ID \d+ )?PG GUID (?P<group>\d{1,18})"
    r"[^\n]{0,20} Rank \d+\] Exc)?"
)
_STATUS = re.compile(
    r"(?:\[PG (?:ID )?\d+[^\]]*?Rank \d+\]|\[Rank \d+\])[^\n]{0,300}?"
    r"last enqueued (?:NCCL )?work: -?\d+,? ?last completed (?:NCCL )?work: "
    r"(?P<done>-?\d{1,18})",
    re.IGNORECASE,
)
_DUMP_SIGNAL = re.compile(
    r"Rank (?P<rank>\d{1,18})\] Received a dump signal due to a collective timeout from\s+"
    r"rank (?P<other>\d+)[^\n]{0,200}?Last enqueued NCCL work: (?P<called>-?\d+), "
    r"last completed NCCL work: (?P<done>-?\d{1,18})"
)
_OF_SHARDS = ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLGATHER", "REDUCE_SCATTER")
_PARAMETERS = 100_000  # fewer values than this are no layer's
_MOST_NAMED = 16
_SHORTEST_S = 30  # a limit below it was set for a test, or in another unit
_NEXT = (
    "while it hangs: grpo-doctor attach (--slurm, --ray, --ssh for all hosts); next time set "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)


@dataclass(frozen=True, slots=True)
class _Wait:
    rank: int  # -1 where the text does not say it
    seq: int  # 0 in the text of an older torch
    op: str
    count: int
    timeout_s: float
    group: str
    position: int  # in the text

    @property
    def call(self) -> str:
        return f"{self.op} number {self.seq}" if self.seq else self.op


def watchdog_finding(text: str) -> Finding | None:
    """Return what the time-outs in a text show; None without any."""
    waits: dict[int, _Wait] = {}
    if "Watchdog caught" not in text:  # the search takes a second for 17 MB
        return None
    for found in _TIMEOUT.finditer(text):
        rank = int(found["rank"] or found["of_group"] or -1)
        seq, count, timeout_ms = (int(found[name] or 0) for name in ("seq", "count", "ms"))
        call = (found["op"], count, timeout_ms / 1000, found["group"] or "", found.start())
        waits.setdefault(rank, _Wait(rank, seq, *call))
    if not waits:
        return None
    first = min(waits.values(), key=lambda wait: (wait.seq, wait.rank))
    name, certainty, says = (
        _short_limit(first) or _in_groups(waits) or _read(text, list(waits.values()), first)
    )
    line, quote = line_at(text, first.position)
    fix = [_FIXES[name]] if name in _FIXES else []
    cls = "fact" if name == "unknown-timeout" else "hang"
    return Finding(name, cls, certainty, says, line, quote, fix, _NEXT)


def dump_signals(text: str) -> list[str]:
    """Return what ranks say that hear of another rank's time-out, while they have none."""
    facts = {
        int(found["rank"]): f"rank {found['rank']} heard of a time-out of rank {found['other']}; "
        f"it had called {found['called']} collectives of its group and finished {found['done']}"
        for found in _DUMP_SIGNAL.finditer(text)
    }
    return [facts[rank] for rank in sorted(facts)][:_MOST_NAMED]


# What to do, by the name of the finding.
_FIXES = {
    "time-limit-short": "raise the limit: timeout of init_process_group, ddp_timeout",
    "collectives-differ": "look for a branch on the rank or its data, and for tensors whose size "
    "differs between ranks",
    "rank-behind": "compare what the ranks do around that call: a branch, a skipped or extra call",
    "nccl-first-collective": "NCCL_DEBUG=INFO shows the transport; try NCCL_P2P_DISABLE=1, then "
    "NCCL_SHM_DISABLE=1; check /dev/shm, ACS and IOMMU, NCCL_SOCKET_IFNAME",
    "rank-late": "the same number of generate steps on all ranks (synced_gpus), or vLLM for it",
    "sharded-forward-differs": "find out where the other ranks are, by stacks or logs; under FSDP "
    "or ZeRO-3 saving, generating and each layer need all ranks, as often on each",
}


def _short_limit(first: _Wait) -> tuple[str, Certainty, str] | None:
    if first.timeout_s >= _SHORTEST_S:
        return None
    said = f"The limit of {first.timeout_s:g} s for {first.call} is far below NCCL's default of 600"
    return "time-limit-short", "likely", f"{said} s: a usual wait exceeds it."


def _in_groups(waits: dict[int, _Wait]) -> tuple[str, Certainty, str] | None:
    """The same as `_read`, of time-outs in several groups: their numbers cannot be compared."""
    if len({wait.group for wait in waits.values()} - {""}) < 2:
        return None
    each = "; ".join(
        f"{_ranks([wait.rank])} in {wait.call} of group {wait.group or 'unknown'}"
        for wait in [*waits.values()][:_MOST_NAMED]
    )
    said = (
        f"Ranks wait in different groups: {each}. One rank that is late holds up both, or two "
        "groups are used in another order on some rank, as by two threads."
    )
    return "unknown-timeout", "possible", said


def _read(text: str, waits: list[_Wait], first: _Wait) -> tuple[str, Certainty, str]:
    """Return the finding's name, its certainty and its sentence."""
    calls = Counter((wait.seq, wait.op, wait.count) for wait in waits)
    numbers = {wait.seq for wait in waits}
    done = [int(found["done"]) for found in _STATUS.finditer(text)]
    who = _ranks([wait.rank for wait in waits])
    where = f"{who} timed out after {first.timeout_s:g} s in {first.call}"
    if len(numbers) == 1 and len(calls) > 1:
        sizes = ", ".join(f"{op} of {count}" for (_, op, count), _ in calls.most_common(4))
        said = f"At number {first.seq} the ranks call different collectives: {sizes}."
        return "collectives-differ", "likely", said
    if len(numbers) > 1:
        behind = _ranks([wait.rank for wait in waits if wait.seq == first.seq])
        verb = "wait" if behind.startswith("Ranks") else "waits"
        said = (
            f"{behind} {verb} at {first.call}, the others are further: the ranks left step at that "
            "number, or are in different groups."
        )
        return "rank-behind", "likely", said
    if 0 < first.seq <= 2 and done and max(done) < first.seq and min(done) <= 0:
        said = f"{where}, the very first collective: the connection between the GPUs fails."
        return "nccl-first-collective", "likely", said
    if "recursively_apply" in text or "operations.py" in text:
        said = (
            f"{where}, a gather of accelerate: a rank that is not among them did not come, as one "
            "that is still generating."
        )
        return "rank-late", "possible", said
    if first.op in _OF_SHARDS and first.count >= _PARAMETERS:
        said = (
            f"{where}, which gathers or reduces sharded parameters ({first.count:,} values): a "
            "rank that is not among them did not come. It ended, is late, or runs other layers or "
            "another number of forward passes."
        )
        return "sharded-forward-differs", "possible", said
    said = (
        f"{where}: ranks that are not in this text did not come, or the network failed; the text "
        "does not say which."
    )
    return "unknown-timeout", "possible", said


def _ranks(ranks: list[int]) -> str:
    numbers = sorted(set(ranks))
    named = ", ".join("unknown" if n < 0 else str(n) for n in numbers[:_MOST_NAMED])
    more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
    return f"{'Rank' if len(numbers) == 1 else 'Ranks'} {named}{more}"
