"""Looks at every image of the dataset before training, shared out to the ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from grpo_doctor_trainer.data.images import BadImageError, probe, source_name
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks.group import sum_over_ranks

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.rows import Row
    from grpo_doctor_trainer.ranks.group import Ranks

_READERS = 8  # a header is a few hundred bytes, so on a network disk this is waiting
_NAMED = 20


def usable_rows(rows: list[Row], config: TrainerConfig, ranks: Ranks) -> list[Row]:
    """Probes the images' headers and applies `--on_bad_image`.

    Each rank probes its share, and all ranks then leave out the same rows: groups may span ranks,
    so that every rank has to number the rows alike. Collective where a row has an image.

    Raises:
        DatasetError: on every rank: an image cannot be read and rows are not to be skipped, or no
            row is left.
    """
    if not any(row.images for row in rows):
        return rows
    with phase("init/images"), ThreadPoolExecutor(_READERS) as pool:
        share = range(ranks.rank, len(rows), ranks.world_size)
        problems = dict(zip(share, pool.map(lambda n: problem(rows[n]), share), strict=True))
    flags = torch.zeros(len(rows), device=ranks.device)
    flags[[index for index, text in problems.items() if text]] = 1
    bad = sum_over_ranks(flags, ranks).nonzero().flatten().tolist()
    if not bad:
        return rows
    reasons = [problems.get(n) or problem(rows[n]) or _elsewhere(rows[n]) for n in bad]
    if config.on_bad_image == "stop":
        raise DatasetError(stop_message(reasons[0], len(bad)))
    if len(bad) == len(rows):
        raise DatasetError(f"no row of {', '.join(config.dataset)} is left: {reasons[0]}")
    for text in reasons[:_NAMED]:
        LOG.info("skipped %s", text)
    LOG.info("skipped %d of %d rows for their images (--on_bad_image skip)", len(bad), len(rows))
    left_out = set(bad)
    return [row for index, row in enumerate(rows) if index not in left_out]


def problem(row: Row) -> str | None:
    """Says which image of a row cannot be read, and why; none if all can."""
    for number, source in enumerate(row.images, start=1):
        try:
            probe(source)
        except BadImageError as error:
            return describe_image(row, number, str(error))
    return None


def describe_image(row: Row, number: int, reason: str) -> str:
    """Names a bad image: its row, which of the row's images it is, its file, and the reason."""
    return (
        f"{row.location}: image {number} of {len(row.images)} "
        f"({source_name(row.images[number - 1])}): {reason}"
    )


def stop_message(text: str, count: int = 1) -> str:
    """Says what to do about images that cannot be read."""
    more = f"; so it is in {count - 1} more rows" if count > 1 else ""
    return f"{text}{more}. Fix it, or leave such rows out with --on_bad_image skip"


def _elsewhere(row: Row) -> str:
    return f"{row.location}: an image can be read on this rank but not on another: a missing mount?"
