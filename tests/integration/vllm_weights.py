"""What the vLLM workers of `test_attach_vllm.py` can do besides: wait for a trainer's weights."""

from __future__ import annotations

import datetime

WAITS_S = 40.0


class Receiver:
    """An extension of vLLM's worker; `collective_rpc` calls it."""

    def update_policy_weights(self, port: int) -> None:
        """Joins a group of two with the trainer, which is not there: ends after `WAITS_S`."""
        import torch.distributed as dist

        dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", port, 2, False, datetime.timedelta(seconds=WAITS_S)
        )
