"""Nothing of the recording machine stays in the evidence, and nothing else of it changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import FlightDump
from tests.corpus import store
from tests.corpus.items import Item
from tests.corpus.scrub import PersonalPathError, scrubbed
from tests.evidence import EvidenceBuilder
from tests.faults.kept import Truth

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_and_its_environment_are_named_as_anybodys() -> None:
    build = EvidenceBuilder()
    build.rank(0)
    evidence = build.build()
    member = replace(evidence.job.members[0], command=f"{ROOT}/.venv/bin/python {ROOT}/train.py")
    dump = FlightDump("file:x", 0, data=f'{{"name": "{ROOT}/train.py:3"}}'.encode())
    clean = scrubbed(replace(evidence, job=replace(evidence.job, members=(member,)), dumps=(dump,)))
    assert clean.job.members[0].command == "/opt/venv/bin/python /srv/grpo/train.py"
    assert clean.dumps[0].data == b'{"name": "/srv/grpo/train.py:3"}'
    assert clean.looks == evidence.looks


def test_a_name_that_begins_as_this_machines_folder_is_left_alone() -> None:
    build = EvidenceBuilder()
    build.rank(0)
    evidence = build.build()
    command = f"python /usr/lib{ROOT.parent}er.py {ROOT.parent}er.py {ROOT.parent}-2/a.py"
    member = replace(evidence.job.members[0], command=command)
    clean = scrubbed(replace(evidence, job=replace(evidence.job, members=(member,))))
    assert clean.job.members[0].command == command


def test_a_pickle_with_paths_of_here_is_refused() -> None:
    build = EvidenceBuilder()
    build.rank(0)
    dump = FlightDump("file:x", 0, data=b"\x80\x02" + str(ROOT).encode())
    with pytest.raises(PersonalPathError, match="rank 0"):
        scrubbed(replace(build.build(), dumps=(dump,)))


def test_what_is_stored_comes_back_as_it_was(tmp_path: Path) -> None:
    build = EvidenceBuilder()
    build.rank(0)
    dump = FlightDump("ptrace", 0, data=b"\x00\xff{}")
    evidence = replace(build.build(), dumps=(dump,))
    truth = Truth(("stuck",), ("lock-held",), (1,), source="verl", family="rewards")
    item = Item("a-case", truth, (evidence, evidence))
    assert store.add([item], tmp_path).keys() == {"verl-rewards.xz"}
    other = Item("another", truth, (evidence,))
    store.add([other], tmp_path)
    assert store.items_of(tmp_path / "verl-rewards.xz") == (item, other)


def test_no_stored_job_has_a_path_of_the_machine_that_recorded_it() -> None:
    for archive in store.archives():
        content = store.content_of(archive)
        assert b"/root/" not in content, archive.name
        assert f"{ROOT}/".encode() not in content, archive.name
