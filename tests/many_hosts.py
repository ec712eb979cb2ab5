"""64 ranks over 8 hosts, one of them stuck: seconds to one verdict, also with a dead host.

`python -m tests.many_hosts` starts a real torchrun job in namespaces that run a real sshd; it needs
what `tests/integration/test_attach_ssh.py` needs, and 12 GB of memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.test_attach_ssh import ssh_job

_STUCK_WITHIN_S = 120.0


def main() -> int:
    """Print what `attach --ssh` says of all hosts, and how long it takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.many_hosts", description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8, help="on each host")
    options = parser.parse_args()
    names = tuple(f"node{number}" for number in range(options.hosts))
    with (
        tempfile.TemporaryDirectory(prefix="hosts-") as folder,
        ssh_job("reward", Path(folder), names, options.ranks) as attach,
    ):
        begun_s = time.monotonic()
        code = 0
        while code != 3 and time.monotonic() - begun_s < _STUCK_WITHIN_S:
            code = _timed(attach, names)
        _timed(attach, names)
        _timed(attach, names, cut=names[-1])
    return 0


def _timed(attach: object, names: tuple[str, ...], cut: str = "") -> int:
    assert callable(attach)
    begun_s = time.monotonic()
    code, document, words = attach("--ssh", ",".join(names), cut=cut)
    took_s = time.monotonic() - begun_s
    verdict = document["verdict"] if document else {"summary": words}
    dead = f", {cut} cut off" if cut else ""
    sys.stdout.write(f"{took_s:.1f} s{dead}: exit {code}: {verdict['summary']}\n")
    sys.stdout.flush()
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
