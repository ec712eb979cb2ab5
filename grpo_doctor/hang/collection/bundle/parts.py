"""The names, the envelope and the limits of a bundle."""

from __future__ import annotations

from typing import Final

import msgspec

from grpo_doctor_probes.evidence import Evidence

EVIDENCE: Final = "evidence.json.gz"
VERDICT: Final = "verdict.json"
PAGE: Final = "hang.html"
README: Final = "README.txt"
ARCHIVES: Final = (".tar.gz", ".tgz")  # how a bundle in one file may be called
SCHEMA: Final = 1

# A bundle stays under 1 MB per rank. A full ring of 2,000 entries is 940 kB of JSON, and about a
# twentieth of it packed: what is larger is no recorder that we know.
MAX_PACKED_DUMP_BYTES: Final = 800_000

# What a stranger's bundle may make us hold: 64 ranks of everything need a hundredth of it.
MAX_FILE_BYTES: Final = 256 * 1024**2
MAX_EVIDENCE_BYTES: Final = 256 * 1024**2
MAX_DUMP_BYTES: Final = 64 * 1024**2
MAX_ALL_DUMPS_BYTES: Final = 512 * 1024**2
MAX_RANKS: Final = 200_000


class Head(msgspec.Struct, frozen=True):
    """What every version's evidence file says first."""

    schema: int


class Envelope(msgspec.Struct, frozen=True):
    """The evidence file. The dumps in it are packed with zlib, each for itself."""

    schema: int
    tool: str
    evidence: Evidence
