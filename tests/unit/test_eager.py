"""A coroutine that is begun at once behaves, awaited, as if it had been awaited from its start."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from limpet.eager import Started


async def test_what_needs_no_wait_is_done_when_it_is_made() -> None:
    """The result waits for whoever awaits."""
    done: list[str] = []

    async def at_once() -> str:
        done.append("done")
        return "result"

    started = Started(at_once())
    assert done == ["done"]
    assert await started == "result"


async def test_an_exception_belongs_to_whoever_awaits() -> None:
    """And is his once: a second traceback would grow the first one's."""

    async def fails() -> None:
        raise ValueError("at once")

    started = Started(fails())
    with pytest.raises(ValueError, match="at once"):
        await started


@pytest.mark.parametrize("waits", [0, 1], ids=["at-once", "later"])
async def test_an_exception_leaves_no_cycle(waits: int) -> None:
    """The frame that raises it is in its traceback, and must not hold it."""

    class Failure(Exception):
        pass

    async def fails() -> None:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise Failure

    async def caught() -> weakref.ref[Failure]:
        try:
            await Started(fails())
        except Failure as error:
            return weakref.ref(error)
        raise AssertionError("not reached")

    gc.collect()
    gc.disable()
    try:
        assert (await caught())() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("waits", [1, 2, 5])
async def test_the_rest_runs_where_it_is_awaited(waits: int) -> None:
    """However often it waits; and it has begun before."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(waits)]
    seen: list[Any] = []

    async def waiting() -> list[Any]:
        seen.append("begun")
        seen.extend([await future for future in futures])
        return seen

    started = Started(waiting())
    assert seen == ["begun"]
    for number, future in enumerate(futures):
        loop.call_soon(future.set_result, number)
    assert await started == ["begun", *range(waits)]


@pytest.mark.parametrize("after", [0, 1])
async def test_what_it_waits_for_fails(after: int) -> None:
    """The first wait, or a later one."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(after + 1)]

    async def waiting() -> None:
        for future in futures:
            await future

    started = Started(waiting())
    for future in futures[:-1]:
        loop.call_soon(future.set_result, None)
    loop.call_soon(futures[-1].set_exception, ValueError("later"))
    with pytest.raises(ValueError, match="later"):
        await started


@pytest.mark.parametrize("more", [0, 1, 3], ids=lambda number: f"{number}-waits-to-tidy-up")
@pytest.mark.parametrize("swallows", [False, True], ids=["ends", "goes-on"])
async def test_a_cancellation_is_the_coroutine_s_to_see(more: int, swallows: bool) -> None:
    """It may tidy up, waiting, and then end or go on, as in a task of its own."""
    begun, tidied = asyncio.Event(), 0

    async def waiting() -> str:
        nonlocal tidied
        try:
            begun.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            for _ in range(more):
                await asyncio.sleep(0)
                tidied += 1
            if not swallows:
                raise
        return "went on"

    async def owner() -> str:
        return await Started(waiting())

    task = asyncio.create_task(owner())
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    if swallows:
        assert await task == "went on"
    else:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert tidied == more


async def test_a_deadline_around_it_holds() -> None:
    """asyncio.timeout cancels its way in and takes the cancellation back."""

    async def waiting() -> None:
        await asyncio.get_running_loop().create_future()

    started = Started(waiting())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await started


async def test_its_cleaning_up_runs_when_its_awaiter_is_closed() -> None:
    """A generator that is dropped in mid-wait is closed, and so is what it ran."""
    tidied: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            tidied.append("tidied")

    async def owner() -> None:
        await Started(waiting())

    coroutine = owner()
    coroutine.send(None)
    coroutine.close()
    assert tidied == ["tidied"]
