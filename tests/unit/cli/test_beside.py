"""Work beside a thread that must never wait."""

from __future__ import annotations

import threading

from grpo_doctor.cli.watching import Beside


def test_what_comes_while_it_works_is_left_out() -> None:
    beside, gate = Beside("test"), threading.Event()
    done: list[int] = []

    def at_the_gate() -> None:
        gate.wait(30)
        done.append(1)

    assert beside.do(at_the_gate)
    assert not beside.do(lambda: done.append(2))
    assert 0 < beside.busy_s < 30
    assert not beside.settle(0.01)
    gate.set()
    assert beside.settle(30)
    assert beside.busy_s == 0
    assert beside.do(lambda: done.append(3))
    assert beside.settle(30)
    assert done == [1, 3]
    beside.close()
    beside._thread.join(30)
    assert not beside._thread.is_alive()
