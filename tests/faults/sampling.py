"""A fixed order of the faults of which every beginning is a fair sample, and the sample of CI.

Drawn by nothing but the names, so that a red run can be run again; a new fault moves few others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from tests.faults.registry import Fault

FAULTS = 44
HEALTHY = 14


def sample(faults: Iterable[Fault], size: int = FAULTS) -> list[Fault]:
    """So many faults, as declared: of every class, family and way to start a job some."""
    declared = list(faults)
    order = spread(declared)
    firsts = {name: fault for fault in reversed(order) for name in _kinds(fault)}
    chosen = list(dict.fromkeys(fault.name for fault in [*firsts.values(), *order]))[:size]
    return [fault for fault in declared if fault.name in chosen]


def _kinds(fault: Fault) -> tuple[tuple[str, str], ...]:
    return ("class", fault.truth.classes[0]), ("family", fault.family), ("launch", fault.launch)


def spread(faults: Iterable[Fault]) -> list[Fault]:
    """All faults: classes take turns, each as often as it has faults, the rare ones first; of a
    class the next is of the family of which there have been fewest.
    """
    of_class: dict[str, list[Fault]] = defaultdict(list)
    for fault in sorted(faults, key=_digest):
        of_class[fault.truth.classes[0]].append(fault)
    uses: Counter[str] = Counter()
    order: list[Fault] = []
    for name in _turns({name: len(members) for name, members in of_class.items()}):
        pool = of_class[name]
        chosen = min(pool, key=lambda fault: uses[fault.family] + uses[fault.launch] / 10)
        pool.remove(chosen)
        uses.update((chosen.family, chosen.launch))
        order.append(chosen)
    return order


def _turns(sizes: dict[str, int]) -> Sequence[str]:
    """Each name as often as its size says: all once, the rarest first, then evenly spread."""
    once = sorted(sizes, key=lambda name: (sizes[name], name))
    more = sorted((turn / sizes[name], name) for name in sizes for turn in range(1, sizes[name]))
    return [*once, *(name for _, name in more)]


def _digest(fault: Fault) -> str:
    return sha256(fault.name.encode()).hexdigest()
