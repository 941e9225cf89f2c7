"""The library's calls leave nothing for the garbage collector either."""

from __future__ import annotations

import pytest

from limpet import Limpet, StaleFence
from limpet.bind import Bind
from tests.support.cycles import no_cycles


@pytest.mark.parametrize("memo_ttl_ms", [0, 1000])
async def test_calls(store_url: str, memo_ttl_ms: int) -> None:
    """Turns with and without a bind, of a pool, waiting; and what ends a binding."""
    async with Limpet.connect(store_url, memo_ttl_ms=memo_ttl_ms) as client:
        await client.register("w", pool="p")
        await client.resolve("warm", session_id="s", bind=Bind(pool="p", wait_ms=10))
        with no_cycles():
            for number in range(3):
                key = f"k{number}"
                for _ in range(3):
                    await client.resolve(key, session_id="s")
                    turn = await client.resolve(key, session_id="s", bind=Bind(pool="p", wait_ms=10))
                    await client.resolve(key, session_id="s", kind="fork", parent_key="k0")
                assert turn.binding is not None
                assert turn.binding.fence is not None
                await client.advance(key, "new")
                with pytest.raises(StaleFence):
                    await client.confirm(key, fence=turn.binding.fence + 1)
                async with client.turn(f"t{number}", session_id="s", bind=True):
                    pass
                with pytest.raises(RuntimeError):
                    async with client.turn(f"u{number}", session_id="s", bind=True):
                        raise RuntimeError
                await client.forget(key)
