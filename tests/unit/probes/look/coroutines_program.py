"""A program whose coroutines wait: coroutines_program.py MODE PORT, for any Python since 3.10."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator

MODE, PORT = sys.argv[1], int(sys.argv[2])


async def answer_of_judge() -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(b"score\n")
    return await reader.readline()


async def own_semaphore() -> None:
    gate = asyncio.Semaphore(1)
    async with gate, gate:
        pass


async def one(number: int, never: asyncio.Event) -> None:
    if number == 5:
        await never.wait()
    await asyncio.sleep(0)


async def gathered() -> None:
    await asyncio.gather(*[one(number, asyncio.Event()) for number in range(8)])


async def all_waited_for() -> None:
    await asyncio.wait([asyncio.ensure_future(one(number, asyncio.Event())) for number in range(8)])


async def shielded() -> None:
    await asyncio.wait_for(asyncio.shield(one(5, asyncio.Event())), 10**6)


async def grouped() -> None:
    async with asyncio.TaskGroup() as group:  # since Python 3.11
        for number in range(8):
            group.create_task(one(number, asyncio.Event()))


async def empty_queue() -> None:
    await asyncio.Queue().get()


async def numbers() -> AsyncIterator[int]:
    yield 1
    await asyncio.Event().wait()


async def generated() -> None:
    async for _ in numbers():
        pass


async def in_a_thread() -> None:
    await asyncio.to_thread(time.sleep, 10**6)


async def bare_future() -> None:
    await asyncio.get_running_loop().create_future()


async def alike() -> None:
    await asyncio.gather(*[asyncio.Event().wait() for _ in range(5)])


async def beside() -> None:
    while True:
        await asyncio.sleep(10**6)


async def scored() -> None:
    kept = asyncio.ensure_future(beside())
    threading.Timer(0.3, print, ("ready",), {"flush": True}).start()
    await globals()[MODE]()
    kept.cancel()


if sys.argv[3] == "main":
    asyncio.run(scored())
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(scored(), loop).result()
