"""A dump's data, of any version from 2.2's list to 2.10, to a `Recording`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from grpo_doctor.hang.dumps.coalesced import settled
from grpo_doctor.hang.dumps.documents import NotADumpError
from grpo_doctor.hang.dumps.entries import EntryReader, SharedValues, clean, integer
from grpo_doctor.hang.dumps.model import Entry, GroupSeen, Recording, Status
from grpo_doctor_probes.evidence import FlightDump

MOST_ENTRIES = 200_000  # of one rank: a hundred default rings
MOST_RANKS = 1 << 20
_NUMBER = re.compile(r"\d{1,9}")
_LIBRARY_KEYS = ("comm_lib_version", "nccl_version")


def normalise(
    data: Any, dump: FlightDump, shared: SharedValues
) -> tuple[Recording, tuple[str, ...]]:
    """The recording and what in it was unusable. `parts` are those of all dumps that are read
    together.

    Raises:
        NotADumpError: it has no entries, groups or counters at all.
    """
    root = {"entries": data} if isinstance(data, list) else data
    if not isinstance(root, dict) or not root.keys() & {"entries", "pg_config", "pg_status"}:
        raise NotADumpError("it has neither entries nor process groups")
    configured = tuple(_configured(root.get("pg_config"), shared))
    statuses = _statuses(root.get("pg_status"))
    names = {key: (group.name, group.description) for key, group in configured}
    reader = EntryReader(names, statuses, shared)
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


def _configured(raw: Any, shared: SharedValues) -> Sequence[tuple[str, GroupSeen]]:
    """The groups of `pg_config`. gloo writes one that has neither name nor ranks."""
    if not isinstance(raw, dict):
        return ()
    listed = []
    for key, value in raw.items():
        config = value if isinstance(value, dict) else {}
        name = clean(config.get("name") or key)
        ranks = _ranks(config.get("ranks"), shared)
        if name or ranks:
            description = clean(config.get("desc")).replace("undefined", "")
            listed.append((str(key)[:40], GroupSeen(name, description, ranks)))
    return listed


def _ranks(raw: Any, shared: SharedValues) -> tuple[int, ...]:
    """A text like "[0, 1]", or a list."""
    if isinstance(raw, str):
        listed = shared.members.get(raw)
        if listed is None:
            numbers = _NUMBER.findall(raw[: MOST_RANKS * 8])
            listed = shared.members[raw] = tuple(map(int, numbers))
        return listed
    if isinstance(raw, (list, tuple)):
        return tuple(n for n in raw[:MOST_RANKS] if isinstance(n, int) and n >= 0)
    return ()


def _statuses(raw: Any) -> dict[str, Status]:
    """The counters of `pg_status`, by group id."""
    kinds = ("enqueued", "started", "completed")
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
