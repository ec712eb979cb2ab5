"""Whether we were away ourselves: stopped with the job by Ctrl-Z, or suspended by a scheduler.

How long something took while nobody looked says nothing of how long it usually takes.
"""

from __future__ import annotations

# Looks come twice a second; a host that swaps may take some seconds for one.
_AWAY_NS = 5_000_000_000
# Where all looks are so far apart the host is slow, and nobody was away.
_OF_USUAL = 3


class Presence:
    """Hears of every look, and tells those that come after an absence."""

    def __init__(self) -> None:
        self._seen_ns: int | None = None
        self._usual_ns = 0

    def missed_ns(self, now_ns: int) -> int:
        """How long we were away until this look (CLOCK_MONOTONIC); 0 if we were not."""
        passed_ns = 0 if self._seen_ns is None else now_ns - self._seen_ns
        away = passed_ns > max(_AWAY_NS, _OF_USUAL * self._usual_ns)
        self._seen_ns, self._usual_ns = now_ns, passed_ns
        return passed_ns if away else 0

    def pause(self) -> None:
        """There are no looks for now, by intent."""
        self._seen_ns = None
