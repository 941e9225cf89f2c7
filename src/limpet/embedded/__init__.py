"""The embedded Valkey of ``serve``, ``gateway`` and ``demo``, for when no store's URL is set (design, section 9).

Four small parts: where things lie (`places`), which binary runs (`binary`), the handle that a process holds (`store`), and
the supervisor, a process of its own that runs the server for as long as anybody holds a handle (`_supervisor`).
"""

from __future__ import annotations

from limpet.embedded.places import default_data_dir
from limpet.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore", "default_data_dir"]
