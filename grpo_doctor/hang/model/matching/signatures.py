"""What all members of a collective must agree on."""

from __future__ import annotations

from math import prod
from pathlib import PurePath

from grpo_doctor.hang.dumps import Entry
from grpo_doctor.hang.dumps.model import Sizes
from grpo_doctor.hang.model.matching.model import Signature
from grpo_doctor_probes.evidence import Frame

# Which shapes must be equal on every member. all_to_all has none: ranks may send different amounts.
_INPUTS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather"})
_OUTPUTS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "scatter"})
_UNTYPED = frozenset({"barrier", "coalesced", "other"})
MOST_SHAPES = 3

Key = tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]  # operations, elements, types
_OF_TORCH = ("/torch/", "typing_extensions.py", "contextlib.py", "/functools.py")


class Signatures:
    """Small numbers for signatures, and for calls: a signature with the line that called it. Equal
    numbers, equal things. One for each matching, whose recordings must outlive it.
    """

    def __init__(self) -> None:
        self._calls: dict[object, int] = {}  # what an entry says of it: call
        self._number_of_call: dict[tuple[int, str], int] = {}
        self._of_call: list[tuple[int, str]] = []  # signature and site, by call
        self._number_of_key: dict[Key, int] = {}
        self._examples: list[tuple[Entry, ...]] = []  # by signature
        self._sites: dict[int, str] = {}  # by the identity of a stack: hashing one is slow

    def call(self, parts: tuple[Entry, ...]) -> int:
        """The number of a collective's call. A coalesced group is one collective."""
        content = _content(parts[0]) if len(parts) == 1 else tuple(map(_content, parts))
        number = self._calls.get(content)
        if number is None:
            pair = (self._signature_number(parts), self.site(parts[0]))
            number = self._number_of_call.setdefault(pair, len(self._of_call))
            if number == len(self._of_call):
                self._of_call.append(pair)
            self._calls[content] = number
        return number

    def key(self, call: int) -> int:
        """The number of a call's signature."""
        return self._of_call[call][0]

    def site_of(self, call: int) -> str:
        """The line of a call."""
        return self._of_call[call][1]

    def text(self, key: int) -> str:
        """A signature in words."""
        return self.signature(self._examples[key]).text()

    def site(self, entry: Entry) -> str:
        """The line of the job's own code that called it."""
        line = self._sites.get(id(entry.frames))
        if line is None:
            line = self._sites[id(entry.frames)] = site(entry.frames)
        return line

    def signature(self, parts: tuple[Entry, ...]) -> Signature:
        """In words."""
        first = parts[0]
        op = first.op if first.op != "other" else first.label
        if len(parts) > 1:
            op = f"group of {len(parts)} ({op}, ...)"
        shapes = first.output_sizes if first.op == "scatter" else first.input_sizes
        dtypes = first.output_dtypes if first.op == "scatter" else first.input_dtypes
        return Signature(op, _shapes(shapes), " ".join(sorted(set(dtypes))), self.site(first))

    def _signature_number(self, parts: tuple[Entry, ...]) -> int:
        key = _key(parts)
        number = self._number_of_key.setdefault(key, len(self._examples))
        if number == len(self._examples):
            self._examples.append(parts)
        return number


def _content(e: Entry) -> object:
    sizes_and_types = e.input_sizes, e.output_sizes, e.input_dtypes, e.output_dtypes
    return e.label, sizes_and_types, id(e.frames)


def site(frames: tuple[Frame, ...]) -> str:
    """`file:line in function` of the innermost frame that is not torch's."""
    for frame in frames:
        if not any(part in frame.file for part in _OF_TORCH):
            return f"{PurePath(frame.file).name}:{frame.line} in {frame.function}"
    return ""


def balanced(calls: list[tuple[Entry, ...]]) -> bool:
    """Whether members of an all_to_all send as much, together, as they expect to receive. Other
    operations have nothing to balance.
    """
    entries = [parts[0] for parts in calls]
    if any(e.op != "all_to_all" or not e.input_sizes or not e.output_sizes for e in entries):
        return True
    sent = sum(prod(shape) for e in entries for shape in e.input_sizes)
    return sent == sum(prod(shape) for e in entries for shape in e.output_sizes)


def is_root(entry: Entry) -> bool:
    """Whether this member collects, or hands out, what all others give or get."""
    return entry.op in {"gather", "scatter"} and (group_size(entry) or 1) > 1


def group_size(entry: Entry) -> int | None:
    """How many members the group has, from what one of them gathers or scatters."""
    part, whole = entry.input_sizes, entry.output_sizes
    if entry.op in {"reduce_scatter", "scatter"}:
        part, whole = whole, part
    elif entry.op not in {"all_gather", "gather"}:
        return None
    own, total = sum(map(prod, part)), sum(map(prod, whole))
    return total // own if own and total and not total % own else None


def _key(parts: tuple[Entry, ...]) -> Key:
    ops: list[str] = []
    elements: list[int] = []
    types: list[str] = []
    for e in parts:
        ops.append(e.label if e.op == "other" else e.op)
        if e.op in _INPUTS:
            elements += [sum(map(prod, e.input_sizes))]
        if e.op in _OUTPUTS:
            elements += [sum(map(prod, e.output_sizes))]
        if e.op not in _UNTYPED:
            types += sorted(set(e.output_dtypes if e.op == "scatter" else e.input_dtypes))
            types += sorted(set(e.output_dtypes)) if e.op in _OUTPUTS & _INPUTS else []
    return tuple(ops), tuple(elements), tuple(types)


def _shapes(sizes: Sizes) -> str:
    shown = [str(list(shape)) for shape in sizes[:MOST_SHAPES]]
    return ", ".join(shown) + (f", and {len(sizes) - MOST_SHAPES} more" if len(sizes) > 3 else "")
