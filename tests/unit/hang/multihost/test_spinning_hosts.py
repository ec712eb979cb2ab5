"""What was seen of spinning hosts, in the numbers of a joined verdict."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.model.process.proc import index
from grpo_doctor.hang.multihost.processes import SPACE, Space, moved
from grpo_doctor_probes.evidence import Locals, Position
from tests.evidence import FIRST_NS, EvidenceBuilder, frames


def test_a_host_that_spins_does_so_in_joined_evidence_as_well() -> None:
    build = EvidenceBuilder(ranks=1, recorded=False)
    build.rank(0).works(frames("compute_loss /home/me/train.py:5"), moves=False)
    evidence = replace(
        build.build(),
        positions=(Position(100, 100, FIRST_NS, "libcuda.so.1", "libcuda.so.1"),),
        locals_seen=(Locals(100, FIRST_NS, "a"),),
    )
    joined = moved(evidence, Space(3, "node3", later_ns=7))
    observation = index(joined)[3 * SPACE + 100]
    assert observation.activity.kind == "spinning"
    assert [moment.at_ns for moment in observation.closer.locals_seen] == [FIRST_NS + 7]
