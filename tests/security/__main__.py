"""`python -m tests.security [NAME...]`: a table of what each attack costs at three sizes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.security.launch_attacks import LAUNCHES
from tests.security.measured import cost
from tests.security.recording_attacks import RECORDINGS

for attack in (*LAUNCHES, *RECORDINGS):
    if sys.argv[1:] and attack.name not in sys.argv[1:]:
        continue
    cells = []
    for size in (attack.size, 2 * attack.size, 4 * attack.size):
        with tempfile.TemporaryDirectory() as name:
            used = cost(attack.write(Path(name), size), Path(name), 12.0)
        traceback = " TRACEBACK" if b"Traceback" in used.output else ""
        cells.append(f"{used.seconds:5.1f} s {used.peak_bytes >> 20:5} MB {used.code:3}{traceback}")
        if used.code < 0:
            break
    last = used.output.decode("utf-8", "replace").strip().splitlines()[-1:] or [""]
    print(f"{attack.name:34} {' | '.join(cells)}  {ascii(last[0])[:110]}", flush=True)  # noqa: T201
