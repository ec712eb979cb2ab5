"""Dump files that each torch wrote itself: 4 gloo ranks, of which rank 2 left out an `all_gather`.

Made by `python -m tests.torches VERSION --keep tests/dumps/versions`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.hang import dumps
from grpo_doctor.hang.collection.examine import examine_dumps
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor_probes.flight import dump_files

FOLDER = Path(__file__).parents[3] / "dumps" / "versions"
VERSIONS = sorted(path.name for path in FOLDER.iterdir())
LARGEST_BYTES = 20_000


def test_there_are_some_of_the_oldest_and_the_newest() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pattern", ["trace_rank_?", "trace_rank_?.json"])
def test_files_of_every_version_are_read_and_judged(
    version: str, pattern: str, tmp_path: Path
) -> None:
    for path in (FOLDER / version).glob(pattern):
        assert path.stat().st_size < LARGEST_BYTES
        (tmp_path / path.name).write_bytes(path.read_bytes())
    read = dumps.read(dump_files([tmp_path]))
    assert read.problems == ()
    assert [recording.rank for recording in read.ranks] == [0, 1, 2, 3]
    verdict = diagnose(examine_dumps(tmp_path)).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "collective-skipped", (2,))
