"""Two replicas of the service over one store."""

from __future__ import annotations

from tests.integration.service.conftest import serve

__all__ = ["serve"]
