"""The phases of each rank over time, thin enough to draw."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.model import Band, Timeline
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import color_of
from grpo_doctor_reports.thinning import thin_bands

_BANDS = 12_000  # over all ranks
_BANDS_PER_RANK = (60, 1_500)
_RANKS = 128


def bands_data(timeline: Timeline, pool: NumberPool) -> tuple[dict[str, Any], str]:
    """Return what the script needs to draw one rank's phases, and a note on what is left out."""
    by_rank = _by_rank(timeline.bands)
    shown = sorted(by_rank)[:_RANKS]
    least, most = _BANDS_PER_RANK
    limit = min(most, max(least, _BANDS // max(1, len(shown))))
    phases = sorted({band.phase for rank in shown for band in by_rank[rank]})
    ranks = [
        _rank_data(rank, thin_bands(by_rank[rank], timeline.end_s, limit), phases, timeline, pool)
        for rank in shown
    ]
    notes = []
    if any(len(by_rank[rank]) > limit for rank in shown):
        width = formatting.seconds(timeline.end_s / limit)
        notes.append(f"Phases are drawn in {width} buckets; the trace has every span.")
    if len(by_rank) > _RANKS:
        notes.append(f"Phases of the first {_RANKS} ranks are drawn.")
    names = [{"name": phase, "color": color_of(phase)} for phase in phases]
    return {"phases": names, "ranks": ranks}, " ".join(notes)


def _by_rank(bands: list[Band]) -> dict[int, list[Band]]:
    by_rank: dict[int, list[Band]] = defaultdict(list)
    for band in bands:
        if "/" not in band.phase:  # sub-spans lie inside their phase's band
            by_rank[band.rank].append(band)
    return by_rank


def _rank_data(
    rank: int, bands: list[Band], phases: list[str], timeline: Timeline, pool: NumberPool
) -> dict[str, Any]:
    edges = [moment for band in bands for moment in (band.start_s, band.end_s)]
    return {
        "rank": rank,
        "edges": pool.add_times(edges, timeline.end_s),
        "phase": pool.add_integers([phases.index(band.phase) for band in bands]),
        "open": [at for at, band in enumerate(bands) if band.open],
    }
