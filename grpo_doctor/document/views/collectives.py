"""Collectives per step, skew told from transfer."""

from __future__ import annotations

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.groups import entry_times, group_times
from grpo_doctor.document.numbers import SECONDS_DIGITS
from grpo_doctor_reports.schema.views import CollectiveEntry

MAX_ENTRIES = 30


def collective_entries(analysis: Analysis) -> list[CollectiveEntry]:
    """The longest kinds of collective; [] where none could be matched.

    First those in which ranks block, then those of which only entry times are known.
    """
    return [
        CollectiveEntry(
            group=times.group,
            name=times.name,
            phase=times.phase,
            count=round(times.per_step, 3),
            seconds=round(times.seconds, SECONDS_DIGITS),
            skew_seconds=round(times.skew_s, SECONDS_DIGITS),
            transfer_seconds=round(times.transfer_s, SECONDS_DIGITS),
            last_rank=times.last_rank,
        )
        for times in (*group_times(analysis), *entry_times(analysis))[:MAX_ENTRIES]
    ]
