"""Real jobs that were recorded once, by family, held to what is known of each."""

from __future__ import annotations

from tests.corpus import known, said, store
from tests.corpus.items import Item
from tests.corpus.score import Answer, answer
from tests.corpus.truth import current

# By the folder of tests that replays them; together all archives of `tests/corpus/items`.
FAMILIES = {
    "causes": (
        "gloo-acceptance", "gloo-collectives", "gloo-control", "gloo-dataload", "gloo-engine",
        "gloo-held-out-chains", "gloo-held-out-groups", "gloo-held-out-host",
        "gloo-held-out-ranks", "gloo-held-out-rewards", "gloo-held-out-servers",
        "gloo-initialisation", "gloo-network", "gloo-slow", "gloo-storage", "gloo-threads",
        "gloo-unforeseen-ends", "gloo-unforeseen-engines", "gloo-unforeseen-files",
        "gloo-unforeseen-helpers", "gloo-unforeseen-host", "gloo-unforeseen-locks",
        "gloo-unforeseen-torch", "gloo-unforeseen-torchrun", "gloo-user-code",
    ),
    "decision": (
        "gloo-calm", "gloo-acceptance", "gloo-control", "gloo-unforeseen-waiting",
        "ms-swift-4-6-0", "TRL-1-16-0", "OpenRLHF-0-11-2",
    ),
    "matching": (
        "gloo-collectives", "gloo-held-out-groups", "gloo-unforeseen-ranks",
        "gloo-unforeseen-torch", "NCCL-H100-nccl-h100", "TRL-1-16-0",
    ),
    "process": (
        "gloo-slow", "gloo-unforeseen-ends", "gloo-unforeseen-beside", "gloo-unforeseen-data",
        "NCCL-rules--spinning-hosts-spinning", "ms-swift-4-6-0",
    ),
    "waiting": (
        "gloo-held-out-chains", "gloo-unforeseen-chains", "gloo-threads",
        "gloo-unforeseen-locks", "gloo-unforeseen-waiting", "verl-0-9-1",
    ),
    "model": (
        "gloo-engine", "gloo-trainer", "gloo-held-out-servers", "gloo-unforeseen-engines",
        "NCCL-H100-nccl-h100",
    ),
    "render": (
        "gloo-engine", "gloo-held-out-servers", "gloo-unforeseen-helpers", "gloo-storage",
        "gloo-unforeseen-ends", "gloo-initialisation", "TRL-1-16-0",
    ),
    "dumps": ("gloo-collectives", "gloo-unforeseen-torch", "NCCL-H100-nccl-h100"),
    "others": ("gloo-trainer", "gloo-unforeseen-threads", "gloo-dataload", "gloo-network"),
}  # fmt: skip


def items(family: str) -> list[Item]:
    """The jobs of one family, each with its truth as it is declared today."""
    stored = store.items_of(store.FOLDER / f"{family}.xz")
    return [Item(item.name, current(item.truth), item.evidences) for item in stored]


def held_to_the_truth(family: str) -> list[Answer]:
    """What is said of each job, after checking that no more of it is wrong than is known to be,
    and that no word of it has changed.
    """
    jobs = items(family)
    answers = [answer(item) for item in jobs]
    wrong = known.wrong_of(answers)
    assert wrong == {name: marks for name, marks in known.known_wrong().items() if name in wrong}
    calm = [row for row in answers if set(row.wanted.states) <= {"healthy", "slow"}]
    assert not [row.name for row in calm if row.state in ("stuck", "dead")]
    assert not [row.name for row in answers if set(row.culprits) & set(row.victims)]
    now = {name: line for item in jobs for name, line in said.lines(item).items()}
    before = {name: line for name, line in said.recorded().items() if name in now}
    assert now == before, "an intended change: python -m tests.corpus accept, and read its diff"
    return answers
