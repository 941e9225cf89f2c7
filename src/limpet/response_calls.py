"""Response chains: a request that names only an earlier response belongs to its conversation (design, section 7)."""

from __future__ import annotations

from limpet.plumbing import Plumbing
from limpet.validate import check_text

__all__ = ["ResponseCalls"]


class ResponseCalls(Plumbing):
    """Which conversation a response belongs to. One round trip each, beside that of the turn."""

    async def link_response(self, response_id: str, key: str) -> None:
        """Remembers for a day that a response belongs to the conversation ``key``.

        Raises InvalidRequest, StoreUnavailable.
        """
        check_text(response_id, "response_id")
        await self._run(self.commands.link_response(response_id, check_text(key, "key")))

    async def key_of_response(self, response_id: str) -> str | None:
        """The key of the conversation that a response belongs to; None if it was never linked, or longer than a day ago.

        Raises InvalidRequest, StoreUnavailable.
        """
        return await self._run(self.commands.find_response(check_text(response_id, "response_id")))
