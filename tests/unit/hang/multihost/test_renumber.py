"""One host's evidence among that of others: no number of it stays behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from grpo_doctor.hang.model.nodes import HOST_STEP
from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.multihost import join
from grpo_doctor.hang.multihost.visits import Home, renumbered
from grpo_doctor_probes.evidence import Evidence, Locals, Position
from tests.evidence import FIRST_NS, EvidenceBuilder, frames

HOME = Home(3, "node3", later_ns=70_000_000)
NUMBER = 9
# Whole numbers that name no process and no moment of a host's own clock.
STAYS = frozenset(
    {"schema", "taken_unix_ns", "at_unix_ns", "rank", "local_rank", "ranks", "ranks_missing"}
    | {"world_size", "local_ranks", "node", "nodes", "uid", "line", "fd", "syscall", "arguments"}
    | {"cpu_ticks", "voluntary", "involuntary", "run_delay_ns", "read_bytes", "written_bytes"}
    | {"major_faults", "rss_bytes", "swap_bytes", "exit_code", "unconfirmed_bytes"}
    | {"retransmits", "peer_unread_bytes", "throttled_ns", "memory_limit_bytes", "oom_kills"}
    | {"memory_used_bytes", "cores", "nice", "total_bytes", "free_bytes", "free_inodes"}
    | {"index", "memory_total_bytes", "ecc_uncorrected", "nvlink_errors", "nvlink_bytes"}
    | {"count", "RayFact.pid"}  # Ray's own words, which name the node
)


def full(kind: Any) -> Any:
    """A record with a number in every field that takes one, and a record in every list."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: full(hints[field.name]) for field in fields(kind)})  # type: ignore[operator]
    origin = get_origin(kind)
    options = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if origin is tuple:
        return tuple(map(full, options))
    if origin in (dict, Literal):
        return {} if origin is dict else options[0]
    if options:
        return full(options[0])
    return NUMBER if kind is int else kind()


def numbers(record: Any, before: Any) -> Iterator[tuple[str, bool]]:
    """The name of each field with numbers, and whether they were changed."""
    for field in fields(record):
        now, then = getattr(record, field.name), getattr(before, field.name)
        if isinstance(now, int) and not isinstance(now, bool):
            yield f"{type(record).__name__}.{field.name}", now != then
        pairs = [(now, then)] if not isinstance(now, tuple) else list(zip(now, then, strict=True))
        while pairs:
            value, old = pairs.pop()
            if isinstance(value, tuple):
                pairs += zip(value, old, strict=True)
            elif is_dataclass(value):
                yield from numbers(value, old)
            elif isinstance(value, int) and isinstance(now, tuple):
                yield f"{type(record).__name__}.{field.name}", value != old


def test_every_number_of_a_record_is_moved_or_is_known_to_stay() -> None:
    """Who adds a field to the evidence decides here what it becomes in joined evidence."""
    before = full(Evidence)
    seen = dict(numbers(renumbered(before, HOME), before))
    assert len(seen) > 60
    for name, changed in seen.items():
        stays = name in STAYS or name.partition(".")[2] in STAYS
        assert changed is not stays, f"{name} {'was moved' if changed else 'stayed behind'}"


def test_every_part_of_the_evidence_is_joined() -> None:
    whole = {"job", "taken_unix_ns", "schema", "looks", "host", "problems", "cost"}
    joined_parts = {*join.OF_ALL_LOOKS, *join.OF_ONE_LOOK}
    assert {field.name for field in fields(Evidence)} == whole | joined_parts


def test_what_is_no_process_and_an_unknown_moment_stay() -> None:
    assert (HOME.pid(0), HOME.pid(-1), HOME.at(0)) == (0, -1, 0)
    assert HOME.pid(1) == 3 * HOST_STEP + 1
    assert HOME.at(5) == 70_000_005


def test_a_host_that_spins_does_so_in_joined_evidence_as_well() -> None:
    build = EvidenceBuilder(ranks=1, recorded=False)
    build.rank(0).works(frames("compute_loss /home/me/train.py:5"), moves=False)
    evidence = replace(
        build.build(),
        positions=(Position(100, 100, FIRST_NS, "libcuda.so.1", "libcuda.so.1"),),
        locals_seen=(Locals(100, FIRST_NS, "a"),),
    )
    observation = index(renumbered(evidence, HOME))[3 * HOST_STEP + 100]
    assert observation.activity.kind == "spinning"
    assert [row.at_ns for row in observation.closer.locals_seen] == [FIRST_NS + HOME.later_ns]
