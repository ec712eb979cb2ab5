"""What every test relies on, whoever started pytest."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# A busy machine stalls for longer than the 200 ms that each example has by default; what never ends
# is ended by pytest's own limit.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_configure() -> None:
    """Gives SIGINT its usual meaning: a shell's background jobs, and all they start, ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
