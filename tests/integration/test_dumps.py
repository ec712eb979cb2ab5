"""Dumps of real gloo ranks with a fault: the right culprit, from both formats."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.cases import BY_NAME, slug
from tests.verdicts import of_dumps

torch = pytest.importorskip("torch", reason="real ranks need torch")

CASES = ("missing rank", "skipped", "extra, of the same size", "groups in another order")
LONG_AFTER_NS = 60_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of eight forked ranks per case."""
    folder = tmp_path_factory.mktemp("dumps")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.dumps.real", str(folder), *CASES],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=280,
    )
    return folder


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize("name", CASES)
def test_the_culprit_is_found_in_real_dumps(recorded: Path, name: str, suffix: str) -> None:
    case = BY_NAME[name]
    folder = recorded / slug(name)
    paths = [folder / f"trace_rank_{rank}{suffix}" for rank in range(8)]
    flight_dumps = [
        FlightDump(
            f"file:{path}",
            rank,
            at_unix_ns=path.stat().st_mtime_ns + LONG_AFTER_NS,
            data=path.read_bytes(),
        )
        for rank, path in enumerate(paths)
    ]
    ruling = of_dumps(flight_dumps)
    assert frozenset(ruling.culprits) == case.culprits
    assert ruling.cause in case.causes
