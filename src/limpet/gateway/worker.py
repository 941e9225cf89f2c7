"""A worker process of ``limpet gateway --workers N``: ``python -m limpet.gateway.worker LISTENER CHANNEL``."""

from __future__ import annotations

import sys

from limpet.gateway.build import build
from limpet.service.worker import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), build))
