"""Asking CUDA whether an event has come, without spoiling a graph that some thread captures.

While any thread captures a CUDA graph in the usual, global mode, a `cudaEventQuery` of any other
thread fails and the capture with it (pytorch#105182). No stream shows captures in other threads.
CUDA has a way out, which torch's own watchdog takes: a thread that is in relaxed mode may ask.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

MAPS = "/proc/self/maps"
_RELAXED = 2  # cudaStreamCaptureModeRelaxed, and HIP's
_EXCHANGE = {
    "libcudart.so": "cudaThreadExchangeStreamCaptureMode",
    "libamdhip64.so": "hipThreadExchangeStreamCaptureMode",
}
_RUNTIME = re.compile(r"\S+ r\S+ 0+ \S+ \d+ +(/.*/(libcudart\.so|libamdhip64\.so)\S*)")


class CaptureMode:
    """`with` it, this thread is in relaxed mode. Not to be nested; one per thread."""

    def __init__(self, exchange: Any, ctypes: Any) -> None:
        """Of the runtime's function; `ctypes` is that module."""
        self._exchange = exchange
        self._mode = ctypes.c_int(_RELAXED)
        self._at = ctypes.byref(self._mode)

    def __enter__(self) -> None:
        """Raise OSError where the runtime refuses, so that nothing is asked."""
        self._mode.value = _RELAXED
        code = self._exchange(self._at)  # puts the old mode in its place
        if code:
            raise OSError(f"the capture mode can't be set: CUDA error {code}")

    def __exit__(self, *error: Any) -> None:
        """Back to the mode that it had."""
        self._exchange(self._at)


def capture_mode() -> CaptureMode | None:
    """That of the runtime which this process has loaded; None where it has none, or links it in.

    Loads nothing. Never raises.
    """
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:  # then there is no torch either
        return None
    try:
        with open(MAPS, encoding="utf-8", errors="surrogateescape") as maps:  # noqa: PTH123
            runtime = next((match for line in maps if (match := _RUNTIME.match(line))), None)
        if runtime is None:
            return None
        library = ctypes.CDLL(runtime[1], mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        exchange = getattr(library, _EXCHANGE[runtime[2]])
        exchange.restype = ctypes.c_int
        return CaptureMode(exchange, ctypes)
    except (OSError, AttributeError, ValueError):
        return None
