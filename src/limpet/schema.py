"""The schema of records: what this release reads, what a namespace may be written in, and what ``config`` in the store holds.

A release reads OLDEST to NEWEST. What is *written* is what ``config`` says, so that while a fleet is upgraded replica by
replica nobody meets a record that it cannot read. ``limpet upgrade`` raises it once all replicas run the new release
(design, section 4). The next schema brings a reader (:mod:`limpet.record`, ``lua/lib/record_unpack.lua``), a writer beside the
first (``lua/lib/record_write_2.lua``), and NEWEST = 2 here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from limpet.errors import StoreMismatch

__all__ = ["CLIENT_NAME", "FIELDS", "NEWEST", "NEW_NAMESPACE", "OLDEST", "Config", "read_config", "reads_of"]

OLDEST: Final = 1
"""The oldest schema that this release can be told to write."""
NEWEST: Final = 1
"""The newest that it reads and can write."""
NEW_NAMESPACE: Final = 1
"""What a new namespace begins with: what the release before this one reads too, so that a tenant who comes in the middle of a
rolling upgrade is served by every replica."""

FIELDS: Final = ("schema", "partitions", "touch_granularity_ms")
"""The fields of ``config``, in the order in which ``config_open`` gives them."""
_NAMED: Final = "limpet:schema-"
CLIENT_NAME: Final = f"{_NAMED}{NEWEST}"
"""How our connections call themselves (CLIENT LIST), so that ``limpet upgrade`` sees who could not read what it permits."""


def reads_of(client_name: str) -> int | None:
    """The newest schema that the owner of a connection reads; None for a connection that is no Limpet's."""
    number = client_name.removeprefix(_NAMED)
    return int(number) if client_name.startswith(_NAMED) and number.isdigit() else None


class Config(NamedTuple):
    """What ``config`` holds for a namespace."""

    schema: int
    partitions: int
    granularity_ms: int

    def require(self, namespace: str, partitions: int) -> None:
        """Raises StoreMismatch when this release, set to so many partitions, must not touch the namespace."""
        if self.schema > NEWEST:
            raise StoreMismatch(
                f"Namespace {namespace} is written in schema {self.schema} and this release reads up to {NEWEST}; "
                "upgrade this replica."
            )
        if self.schema < OLDEST:
            raise StoreMismatch(
                f"Namespace {namespace} is written in schema {self.schema} and this release writes {OLDEST} or later; "
                "run `limpet upgrade` with the release before, then this one."
            )
        if self.partitions != partitions:
            raise StoreMismatch(
                f"Namespace {namespace} has {self.partitions} partitions in the store and this replica is set to "
                f"{partitions}; set LIMPET_PARTITIONS={self.partitions}, since the number cannot change."
            )


def read_config(reply: list[Any]) -> Config:
    """The three fields. Raises StoreMismatch for what is no number."""
    try:
        schema, partitions, granularity_ms = (int(value) for value in reply)
    except (TypeError, ValueError):
        raise StoreMismatch("The namespace's config in the store holds what is no number; mend or remove that hash.") from None
    return Config(schema, partitions, granularity_ms)
