"""Whether the store is fit for the guarantees: each check with one sentence that says what to do.

Readiness fails only for what makes a guarantee void: unreachable, set up otherwise, an eviction policy that may drop the clocks,
missing rights. All else warns. ``limpet doctor`` asks for more and is stricter: it is read by somebody who can mend it.
"""

from limpet.health.model import Check, Health, parse_info
from limpet.health.run import check_health

__all__ = ["Check", "Health", "check_health", "parse_info"]
