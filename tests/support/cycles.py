"""Whether work leaves objects of ours behind that only the garbage collector can free: it stops the process for them."""

from __future__ import annotations

import collections
import contextlib
import gc
from collections.abc import Iterator

__all__ = ["no_cycles"]


@contextlib.contextmanager
def no_cycles() -> Iterator[None]:
    """Fails if what is done inside left an object of a class, or a frame or function of a module, of Limpet's in a cycle."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.garbage.clear()
    try:
        yield
        gc.collect()
        left = collections.Counter(_name(each) for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    ours = {name: count for name, count in left.items() if name.startswith("limpet.")}
    assert not ours, ours


def _name(each: object) -> str:
    owner = each if callable(each) and hasattr(each, "__qualname__") else type(each)
    code = getattr(each, "f_code", getattr(each, "cr_code", None))
    if code is not None and "/limpet/" in code.co_filename:
        return f"limpet.{code.co_qualname}"
    return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"
