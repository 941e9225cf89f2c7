"""A raw connection for pipelines of packed commands: what a client could ask at most, without any client in the way."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import hiredis
import redis

__all__ = ["Pipe"]


class Pipe:
    """Sends batches and reads their replies. Raises hiredis.ReplyError for the first reply that is an error."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._connection: Any = self._pool.get_connection()
        self._socket: Any = self._connection._sock  # redis-py connects; the bytes are ours

    def run(self, commands: Sequence[bytes], depth: int) -> list[Any]:
        """Sends all commands, ``depth`` at a time; the replies."""
        replies: list[Any] = []
        reader = hiredis.Reader()
        for start in range(0, len(commands), depth):
            batch = commands[start : start + depth]
            self._socket.sendall(b"".join(batch))
            wanted = len(replies) + len(batch)
            while len(replies) < wanted:
                data = self._socket.recv(1 << 20)
                if not data:
                    raise ConnectionError("The server closed the connection of the bench.")
                reader.feed(data)
                while (reply := reader.gets()) is not False:
                    if isinstance(reply, hiredis.ReplyError):
                        raise reply
                    replies.append(reply)
        return replies

    def close(self) -> None:
        """Gives the connection back."""
        self._connection.disconnect()
        self._pool.release(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
