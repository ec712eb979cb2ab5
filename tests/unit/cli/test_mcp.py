"""`grpo-doctor mcp` asked by the official client: each tool once, and hostile arguments."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.cli.mcp import TOOLS, bounded
from grpo_doctor.trace.write import write_trace
from tests.unit.findings.example_runs import offloaded

pytest.importorskip("mcp")
pytestmark = pytest.mark.slow
Call = Callable[..., Awaitable[dict[str, Any]]]


def with_client(talk: Callable[[Any, Call], Awaitable[None]]) -> None:
    """Start the server as an agent does, and talk to it."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def run() -> None:
        server = StdioServerParameters(command=sys.executable, args=["-m", "grpo_doctor", "mcp"])
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()

            async def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
                result = await session.call_tool(tool, arguments)
                answer: dict[str, Any] = json.loads(result.content[0].text)
                assert len(json.dumps(answer)) <= 20_500
                assert answer["next_step"]
                return answer

            await talk(session, call)

    asyncio.run(asyncio.wait_for(run(), 400))


def test_every_tool_answers_with_a_page_and_a_next_step(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    write_trace(offloaded().build(), trace)

    async def talk(session: Any, call: Call) -> None:
        tools = (await session.list_tools()).tools
        assert [tool.name for tool in tools] == [tool.__name__ for tool in TOOLS]
        assert all(tool.description for tool in tools)
        report = await call("report", recording=str(trace))
        assert report["findings"]
        assert "views" not in report
        only = await call("findings", recording=str(trace), select=report["findings"][0]["id"])
        assert len(only["findings"]) == 1
        assert "step" in json.dumps(await call("rule", name="GD004"))
        change = await call("whatif", recording=str(trace), change="offload.optimizer=false")
        assert "error" not in change, change
        compared = await call("compare", before=str(trace), after=str(trace))
        assert "error" not in compared, compared
        checked = await call("check", command="swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B "
                             "--dataset d.jsonl", gpus="8xA100-80G")  # fmt: skip
        assert "verdict" in checked
        plan = await call("treat", command="--max_steps 30", folder=str(tmp_path / "none"))
        assert plan["state"] == "dry run", plan
        assert not (tmp_path / "none").exists()
        log = await call("diagnose", text="ValueError: No available memory for the cache blocks.")
        assert log["cause"]["name"] == "no-room-for-kv-cache"
        stuck = await call("attach", pid=1)
        assert "error" in stuck or "verdict" in stuck

    with_client(talk)


def test_hostile_arguments_are_values_or_refused(tmp_path: Path) -> None:
    async def talk(_: Any, call: Call) -> None:
        out = tmp_path / "written"
        for tool, arguments in (
            ("report", {"recording": f"--output={out}"}),
            ("report", {"recording": f"/etc/passwd; touch {out}"}),
            ("findings", {"recording": "x", "select": f"--output={out}"}),
            ("whatif", {"recording": "x", "change": "--json"}),
            ("diagnose", {"file": "-"}),
            ("attach", {"slurm_job": f"$(touch {out})"}),
            ("check", {"command": "bash 'unclosed"}),
            ("check", {"command": f"touch {out}"}),
            ("treat", {"command": f"touch {out}", "folder": "x"}),
        ):
            assert "error" in await call(tool, **arguments), tool
        assert not out.exists()

    with_client(talk)


def test_long_answers_are_cut_and_say_so() -> None:
    rows = [{"text": "x" * 5000, "more": list(range(1000))} for _ in range(100)]
    page = bounded({"rows": rows, "next_step": "none"})
    assert len(json.dumps(page)) <= 20_000
    assert "shortened" in page["cut"]
    short = {"rows": [1, 2], "next_step": "none"}
    assert bounded(short) == short
