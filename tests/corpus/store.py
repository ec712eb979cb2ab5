"""The recorded jobs in the repository: one xz archive per source and family, alike ones together.

An archive is the msgpack of its items, in order of their names. Packed together, the stacks and
dumps of one family's jobs cost little more than those of one: msgpack keeps the dumps' bytes as
they are, so that xz finds what they share.
"""

from __future__ import annotations

import lzma
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.corpus.items import Item
from tests.faults.kept import slug

FOLDER = Path(__file__).with_name("items")
_ENDING = ".xz"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26}]


def archives(folder: Path = FOLDER) -> list[Path]:
    """All archives."""
    return sorted(folder.glob(f"*{_ENDING}"))


def items_of(archive: Path) -> tuple[Item, ...]:
    """The jobs of one archive."""
    return msgspec.msgpack.decode(content_of(archive), type=tuple[Item, ...])


def content_of(archive: Path) -> bytes:
    """What is packed in one archive."""
    return lzma.decompress(archive.read_bytes())


def add(items: Iterable[Item], folder: Path = FOLDER) -> dict[str, int]:
    """Stores jobs; one of the same name is replaced. Returns the changed archives' bytes."""
    of_archive: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        of_archive[archive_name(item)].append(item)
    return {name: _write(folder / name, new) for name, new in sorted(of_archive.items())}


def archive_name(item: Item) -> str:
    """Of the archive that a job belongs in."""
    parts = dict.fromkeys(slug(part) for part in (item.truth.source, item.truth.family) if part)
    return "-".join(parts) + _ENDING


def _write(archive: Path, new: Iterable[Item]) -> int:
    items = {item.name: item for item in items_of(archive)} if archive.exists() else {}
    items |= {item.name: item for item in new}
    content = msgspec.msgpack.encode([items[name] for name in sorted(items)])
    packed = lzma.compress(content, lzma.FORMAT_XZ, filters=_FILTERS)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(packed)
    return len(packed)
