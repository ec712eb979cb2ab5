"""Shared memory is nearly full."""

from __future__ import annotations

import numpy as np

from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import sampled
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.whatif.room import GIB

_USED, _SIZE = "host.shm_used", "host.shm_size"
_RUN = "record with `grpo-doctor run`"
RULE = rule("system", sampled(_USED, _RUN), sampled(_SIZE, _RUN))
# Batches come in pieces of many megabytes: at nine tenths the next one may not fit.
MIN_USED_SHARE = 0.80
HIGH_USED_SHARE = 0.95
# A container's default; a single batch of images fills it.
DEFAULT_BYTES = 64 * 2**20
_RISK = (
    "Uses host memory as it fills. In Kubernetes it is an emptyDir volume of "
    "medium Memory at /dev/shm."
)


def check(view: RunView) -> Answer:
    """Compare the peak of each host with the size."""
    # Most in use and size, in bytes, of each host.
    sizes = {s.host: float(np.nanmax(s.values)) for s in view.series(_SIZE)}
    pairs = [
        (float(np.nanmax(s.values)), sizes[s.host], s.host)
        for s in view.series(_USED)
        if sizes.get(s.host, 0.0) > 0
    ]
    if not pairs:
        return NotApplicable("shared memory has no size on this host")
    used, size, host = max(pairs, key=lambda pair: pair[0] / pair[1])
    share = used / size
    if share < MIN_USED_SHARE:
        return Passed(f"at most {percent(share)} of {size / GIB:.3g} GiB are in use")
    where = f"{_USED}, {_SIZE} of {host}"
    reason = "it keeps the run alive; it makes no step shorter"
    return Finding(
        severity="high" if share >= HIGH_USED_SHARE else "medium",
        confidence=0.9,
        evidence=(
            Evidence("peak usage", used / GIB, "GiB", where),
            Evidence("size", size / GIB, "GiB", where),
            Evidence("in use", 100 * share, "%", where),
        ),
        cause=f"{percent(share)} of the {size / GIB:.3g} GiB of /dev/shm on {host} are in use"
        + (", which has a container's default size." if size <= DEFAULT_BYTES else "."),
        fixes=(view.edit("for `docker run`: --shm-size 16g", reason, risk=_RISK),),
    )
