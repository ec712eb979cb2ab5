"""When a suspicion that a look has not settled is looked at again: later and later.

That holds for one and the same suspicion. Ranks that have moved since and stand still again are
another one, which waits for nothing.
"""

from __future__ import annotations

# After a first look that could not tell or went wrong, then twice as long, and so on.
RETRY_S, MOST_RETRY_S = 30.0, 600.0

Marks = frozenset[tuple[int, str, tuple[int, int]]]


class Retries:
    """Remembers what was put off, and until when. Times are CLOCK_MONOTONIC nanoseconds."""

    def __init__(self) -> None:
        self.failures = 0  # in a row
        self._marks: Marks = frozenset()
        self._not_before_ns = self._failed_until_ns = 0
        self._wait_s = RETRY_S
        self._given_up = False

    def due(self, marks: Marks, now_ns: int) -> bool:
        """Whether a suspicion is to be looked at now; `marks` are what changes with it."""
        if self._given_up or now_ns < self._failed_until_ns:
            return False
        return now_ns >= self._not_before_ns or not marks & self._marks

    def put_off(self, marks: Marks, now_ns: int) -> None:
        """A look at it could not tell."""
        if not marks & self._marks:
            self._wait_s = RETRY_S
        self._marks = marks
        self._not_before_ns = now_ns + int(self._wait_s * 1e9)
        self._wait_s = min(2 * self._wait_s, MOST_RETRY_S)

    def fail(self, now_ns: int) -> None:
        """A look went wrong, which may have nothing to do with what was suspected."""
        wait_s = min(RETRY_S * 2**self.failures, MOST_RETRY_S)
        self._failed_until_ns = now_ns + int(wait_s * 1e9)
        self.failures += 1

    def settle(self) -> None:
        """A look went well."""
        self.failures = 0

    def give_up(self) -> None:
        """No look will ever go well."""
        self._given_up = True
