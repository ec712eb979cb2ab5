"""A dump's data, of any version from 2.2's list to 2.10, to a `Recording`.

Of operations that were launched as one, NCCL's recorder follows only the entry that ends the group:
all before it stay "scheduled" forever.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from grpo_doctor.hang.dumps.documents import EntryReader, NotADumpError, clean, integer
from grpo_doctor.hang.dumps.model import Entry, GroupSeen, Recording, Status
from grpo_doctor_probes.evidence import FlightDump

Key = tuple[str, str, bool, int]


def settled(entries: Sequence[Entry], statuses: Mapping[str, Status]) -> tuple[Entry, ...]:
    """Apply what the end of each group shows of its parts; drop a group of which the ring
    has lost the first ones. `statuses` are the rank's counters by group id.
    """
    only_active = not any(entry.done for entry in entries)
    if only_active:
        entries = _without_ended(entries, statuses)
    ends = {_key(entry): entry for entry in entries if entry.op == "coalesced"}
    if not ends:
        return tuple(entries)
    first = entries[0]
    is_cut_off = not only_active and first.record > 1 and _key(first) in ends
    lost = _key(first) if is_cut_off else None
    return tuple(
        _as_its_end(entry, ends.get(key)) for entry in entries if (key := _key(entry)) != lost
    )


def _without_ended(entries: Sequence[Entry], statuses: Mapping[str, Status]) -> Sequence[Entry]:
    """Of a dump of active operations alone, without the parts of groups that have ended: these stay
    in it, and their ends do not. Where the last transfer that is over by the counter has left
    nothing, transfers are launched one by one, and those that are here are not over.
    """
    transfers: dict[str, set[int]] = defaultdict(set)
    for entry in entries:
        if entry.is_p2p:
            transfers[entry.group_id].add(entry.p2p_sequence)
    ended_keys = set()
    for entry, following in pairwise(
        [*entries, replace(entries[-1], record=-1)] if entries else []
    ):
        completed = statuses.get(entry.group_id, Status()).completed
        over = 0 < entry.p2p_sequence <= completed and completed > entry.sequence
        is_recorded = completed in transfers[entry.group_id]
        if entry.is_p2p and over and is_recorded and following.record != entry.record + 1:
            ended_keys.add(_key(entry))
    return [entry for entry in entries if not entry.is_p2p or _key(entry) not in ended_keys]


def _key(entry: Entry) -> Key:
    """Parts of a group share its number."""
    number = entry.p2p_sequence if entry.is_p2p else entry.sequence
    return entry.group, entry.backend, entry.is_p2p, number


def _as_its_end(entry: Entry, end: Entry | None) -> Entry:
    if end is None or entry is end or entry.done:
        return entry
    return replace(
        entry,
        started_ns=end.started_ns,
        started=end.started,
        done=end.done,
        timed_out=end.timed_out,
    )


MOST_ENTRIES = 200_000  # of one rank: a hundred default rings
MOST_RANKS = 1 << 20
_NUMBER = re.compile(r"\d{1,9}")
_LIBRARY_KEYS = ("comm_lib_version", "nccl_version")


def normalise(data: Any, dump: FlightDump) -> tuple[Recording, tuple[str, ...]]:
    """The recording and what in it was unusable.

    Raises:
        NotADumpError: it has no entries, groups or counters at all.
    """
    root = {"entries": data} if isinstance(data, list) else data
    if not isinstance(root, dict) or not root.keys() & {"entries", "pg_config", "pg_status"}:
        raise NotADumpError("it has neither entries nor process groups")
    configured = tuple(_configured(root.get("pg_config")))
    statuses = _statuses(root.get("pg_status"))
    names = {key: (group.name, group.description) for key, group in configured}
    reader = EntryReader(names, statuses)
    entries, problems = _entries(root.get("entries"), reader, statuses)
    library = next((clean(root[key]) for key in _LIBRARY_KEYS if root.get(key)), "")
    recording = Recording(
        rank=dump.rank,
        sources=(clean(dump.source),),
        library=library,
        at_unix_ns=dump.at_unix_ns,
        groups=_groups(tuple(group for _, group in configured), statuses, entries),
        entries=entries,
    )
    return recording, problems


def _entries(
    raw: Any, reader: EntryReader, statuses: Mapping[str, Status]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    if not isinstance(raw, (list, tuple)):
        return (), () if raw is None else ("its entries are not a list",)
    problems = []
    if len(raw) > MOST_ENTRIES:
        problems.append(f"of {len(raw):,} entries, only the last {MOST_ENTRIES:,} are used")
        raw = raw[-MOST_ENTRIES:]
    entries: list[Entry] = []
    bad = 0
    for position, entry in enumerate(raw):
        try:
            entries.append(reader.read(entry, position))
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            bad += 1
    if bad:
        problems.append(f"{bad:,} of its {len(raw):,} entries are damaged and were left out")
    return settled(entries, statuses), tuple(problems)


def _configured(raw: Any) -> Sequence[tuple[str, GroupSeen]]:
    if not isinstance(raw, dict):
        return ()
    listed = []
    for key, value in raw.items():
        config = value if isinstance(value, dict) else {}
        name = clean(config.get("name") or key)
        ranks = _ranks(config.get("ranks"))
        if name or ranks:
            description = clean(config.get("desc")).replace("undefined", "")
            listed.append((str(key)[:40], GroupSeen(name, description, ranks)))
    return listed


def _ranks(raw: Any) -> tuple[int, ...]:
    """A text like "[0, 1]", or a list."""
    if isinstance(raw, str):
        return _listed(raw[: MOST_RANKS * 8])
    if isinstance(raw, (list, tuple)):
        return tuple(n for n in raw[:MOST_RANKS] if isinstance(n, int) and n >= 0)
    return ()


@lru_cache(maxsize=1024)  # every rank of a job lists the same groups
def _listed(text: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(text)))


def _statuses(raw: Any) -> dict[str, Status]:
    kinds = ("enqueued", "completed")
    return {
        str(key)[:40]: Status(*(_counter(counters, kind) for kind in kinds))
        for key, counters in (raw.items() if isinstance(raw, dict) else ())
        if isinstance(counters, dict)
    }


def _counter(status: Mapping[str, Any], kind: str) -> int:
    value = status.get(f"last_{kind}_collective")
    return integer(value, -1) if isinstance(value, (int, str)) else -1


def _groups(
    configured: tuple[GroupSeen, ...], statuses: Mapping[str, Status], entries: Sequence[Entry]
) -> tuple[GroupSeen, ...]:
    """Every group that the dump knows, once: from its list, its entries and its counters."""
    by_name = {group.name: group for group in configured}
    used = {(entry.group, entry.backend): entry for entry in entries}
    groups = []
    for (name, backend), entry in used.items():
        group = by_name.get(name, GroupSeen(name))
        groups.append(
            replace(
                group,
                description=entry.description or group.description,
                backend=backend,
                group_id=entry.group_id,
                status=statuses.get(entry.group_id, Status()),
            )
        )
    met_names = {name for name, _ in used}
    met_ids = {group.group_id for group in groups}
    by_id = _by_creation(configured, groups, statuses)
    backends = sorted({backend for _, backend in used})
    backend = backends[0] if len(backends) == 1 else ""
    for group_id, status in statuses.items():
        if group_id not in met_ids:
            group = by_id.get(group_id, GroupSeen(""))
            met_names.add(group.name)
            groups.append(replace(group, backend=backend, group_id=group_id, status=status))
    groups += [group for group in configured if group.name not in met_names]
    return tuple(groups)


def _by_creation(
    configured: Sequence[GroupSeen], used: Sequence[GroupSeen], numbers: Iterable[str]
) -> dict[str, GroupSeen]:
    """Groups by the rank's own number, for those whose entries the ring has lost: names and
    numbers both count up as groups are made. Nothing where the entries that are left contradict,
    or where there are more numbers than groups (Megatron makes groups that are not listed).
    """
    if not all(group.name.isdecimal() for group in configured):
        return {}
    order = sorted(configured, key=lambda group: int(group.name))
    numbered = {str(number): group for number, group in enumerate(order)}
    if not numbered.keys() >= set(numbers):
        return {}
    contradict = any(numbered.get(group.group_id, group).name != group.name for group in used)
    return {} if contradict else numbered
