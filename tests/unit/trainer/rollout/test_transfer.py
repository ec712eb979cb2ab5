"""Weight parts in flight: what is sent, when, and what is left after an error."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

torch = pytest.importorskip("torch", reason="needs the trainer extra")

from grpo_doctor_trainer.errors import RolloutError  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.transfer import InFlight  # noqa: E402
from grpo_doctor_trainer.rollout.vllm.weight_checks import Part  # noqa: E402

PATIENCE_S = 60


@dataclass
class Noted:
    """Sends to a list; each part waits until `may_send` is set, and `broken` ones fail."""

    may_send: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    broken: str = ""
    calls: list[str] = field(default_factory=list)
    sent: dict[str, list[float]] = field(default_factory=dict)

    def describe(self) -> str:
        return "a list"

    def begin(self, version: str) -> None:
        self.calls.append(f"begin {version}")

    def add(self, part: Part) -> None:
        self.begun.set()
        assert self.may_send.wait(PATIENCE_S)
        for name, tensor in part:
            if name == self.broken:
                raise RolloutError(f"{name} was lost")
            self.sent[name] = tensor.tolist()

    def finish(self) -> None:
        self.calls.append(f"finish {sorted(self.sent)}")

    def abandon(self) -> None:
        self.calls.append("abandon")
        self.sent = {}

    def close(self) -> None:
        self.calls.append("close")
        self.may_send.set()  # as a group that is left ends what is under way in it


def part(*names: str) -> Part:
    return [(name, torch.full((2,), float(ord(name[0])))) for name in names]


def test_a_part_is_sent_while_the_next_one_is_made_of_the_same_memory() -> None:
    noted = Noted()
    transfer = InFlight(noted)
    assert transfer.describe() == "a list, a part in flight"
    transfer.begin("w1")
    first = part("a", "b")
    transfer.add(first)
    assert noted.begun.wait(PATIENCE_S)
    for _, tensor in first:
        tensor.zero_()  # gathered weights go when the next ones are gathered
    assert noted.sent == {}
    noted.may_send.set()
    transfer.add(part("c"))
    transfer.finish()
    assert noted.sent == {"a": [97.0] * 2, "b": [98.0] * 2, "c": [99.0] * 2}
    assert noted.calls == ["begin w1", "finish ['a', 'b', 'c']"]
    transfer.close()


def test_a_second_part_waits_for_the_first() -> None:
    noted = Noted()
    transfer = InFlight(noted)
    transfer.add(part("a"))
    second = threading.Thread(target=transfer.add, args=(part("b"),))
    second.start()
    second.join(0.05)
    assert second.is_alive()
    noted.may_send.set()
    second.join(PATIENCE_S)
    transfer.finish()
    assert list(noted.sent) == ["a", "b"]
    transfer.close()


@pytest.mark.parametrize("told_by", ["add", "finish"])
def test_what_went_wrong_in_flight_is_told_by_the_next_call(told_by: str) -> None:
    noted = Noted(broken="a")
    noted.may_send.set()
    transfer = InFlight(noted)
    transfer.add(part("a"))
    with pytest.raises(RolloutError, match="a was lost"):
        transfer.add(part("b")) if told_by == "add" else transfer.finish()
    transfer.abandon()
    noted.broken = ""
    transfer.add(part("c"))
    transfer.finish()
    assert noted.calls == ["abandon", "finish ['c']"]
    transfer.close()


def test_closing_ends_what_is_in_flight_and_leaves_nothing() -> None:
    noted = Noted()
    transfer = InFlight(noted)
    transfer.add(part("a"))
    assert noted.begun.wait(PATIENCE_S)
    transfer.close()
    assert noted.calls == ["close", "abandon"]
    assert noted.sent == {}
    assert not [t for t in threading.enumerate() if t.name.startswith("weights-in-flight")]
