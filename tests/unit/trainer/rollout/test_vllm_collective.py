"""Weights over a group of collectives: gloo between threads, as NCCL between processes."""

from __future__ import annotations

import threading

import pytest
import torch

from grpo_doctor_trainer.rollout.vllm.collective import Channel, receive, send_part
from grpo_doctor_trainer.rollout.vllm.weight_checks import Signature
from grpo_doctor_trainer.serve.protocol import JoinRequest


def pair(timeout_s: float) -> tuple[Channel, Channel]:
    def end(rank: int, port: int) -> Channel:
        group = JoinRequest("gloo", "127.0.0.1", port, 2, timeout_s)
        return Channel(group, rank, torch.device("cpu"))

    sender = end(0, 0)
    receiver = end(1, sender.port)
    joining = threading.Thread(target=receiver.join)
    joining.start()
    sender.join()
    joining.join()
    return sender, receiver


def test_tensors_of_any_dtype_and_shape_arrive() -> None:
    sender, receiver = pair(20)
    parts = [
        [("a", torch.randn(3, 4)), ("b", torch.tensor(2.5))],
        [("c", torch.randn(8, 2).T), ("d", torch.randn(5).bfloat16()), ("e", torch.arange(3))],
        [],
    ]
    received: dict[str, torch.Tensor] = {}
    signature = Signature()

    def take() -> None:
        received.update(receive(receiver, signature.add))

    taking = threading.Thread(target=take)
    taking.start()
    sent = Signature()
    for part in parts:
        for name, tensor in part:
            sent.add(name, tensor)
        send_part(sender, part)
    taking.join(20)
    every = [pair for part in parts for pair in part]
    assert list(received) == [name for name, _ in every]
    for name, tensor in every:
        assert received[name].dtype == tensor.dtype
        assert received[name].equal(tensor)
    assert signature.value() == sent.value()
    sender.close()
    receiver.close()
    receiver.close()


def test_a_receiver_that_never_comes_is_an_error_in_time() -> None:
    channel = Channel(JoinRequest("gloo", "127.0.0.1", 0, 2, 1.0), 0, torch.device("cpu"))
    with pytest.raises(RuntimeError):
        channel.join()


def test_a_signature_tells_changes_and_not_the_order() -> None:
    def signed(*pairs: tuple[str, torch.Tensor]) -> str:
        signature = Signature()
        for name, tensor in pairs:
            signature.add(name, tensor)
        return signature.value()

    matrix, vector = torch.ones(2, 3), torch.arange(4.0)
    base = signed(("a", matrix), ("b", vector))
    assert signed(("b", vector), ("a", matrix)) == base
    changed = vector.clone()
    changed[1] += 1e-6
    assert (
        len(
            {
                base,
                signed(("a", matrix)),
                signed(("a", matrix), ("b", changed)),
                signed(("a", matrix.T), ("b", vector)),
                signed(("a", matrix.bfloat16()), ("b", vector)),
                signed(("a", matrix), ("c", vector)),
            }
        )
        == 6
    )
