"""What every test relies on, whoever started pytest."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Gives SIGINT its usual meaning: a shell's background jobs, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
