"""What `attach` says of a recorded job today, held to the truth."""

from __future__ import annotations

import time
import traceback

import msgspec

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import joined
from grpo_doctor_probes.evidence import Evidence
from tests.corpus.items import Item
from tests.faults.kept import Truth


class Answer(msgspec.Struct, frozen=True):
    """What was said of one job, and what of it is right. `cpu_s` is what the reasoning took."""

    name: str
    source: str
    family: str
    state: str
    cause: str
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    confidence: float
    summary: str
    state_right: bool
    culprit_right: bool
    cause_right: bool
    cpu_s: float
    wanted: Truth

    @property
    def right(self) -> bool:
        return self.state_right and self.culprit_right and self.cause_right

    @property
    def marks(self) -> str:
        """What is right: S (the state), R (the ranks), C (the class), a dash for what is not."""
        rights = (self.state_right, self.culprit_right, self.cause_right)
        return "".join(letter if right else "-" for letter, right in zip("SRC", rights))


def evidence_of(item: Item) -> Evidence:
    """What was seen of the job, on all its hosts."""
    return item.evidences[0] if len(item.evidences) == 1 else joined(item.evidences)


def answer(item: Item) -> Answer:
    """Diagnoses one job; an exception is an answer that is wrong in everything."""
    began = time.process_time()
    truth = item.truth
    try:
        verdict = diagnose(evidence_of(item)).verdict
    except Exception:  # noqa: BLE001 - one job that can't be diagnosed must not hide the others
        return Answer(
            item.name, truth.source, truth.family or truth.source, "error", "", (), (), 0.0,
            traceback.format_exc()[-1500:], False, False, False, time.process_time() - began, truth,
        )  # fmt: skip
    return Answer(
        item.name, truth.source, truth.family or truth.source, verdict.state, verdict.cause,
        verdict.culprits, verdict.victims, verdict.confidence, verdict.summary,
        verdict.state in truth.states, ranks_right(truth, verdict.culprits),
        not truth.classes or verdict.cause in truth.classes, time.process_time() - began, truth,
    )  # fmt: skip


def ranks_right(truth: Truth, blamed: tuple[int, ...]) -> bool:
    """Whether those to blame are named, and nobody else."""
    if truth.culprits is None:
        return True
    if not truth.culprits:
        return not blamed
    return bool(blamed) and set(blamed) <= set(truth.culprits)
