"""The wire: where each provider wants a conversation's scope (design, section 6)."""

from __future__ import annotations

from limpet.wire.config import load_profiles
from limpet.wire.profiles import PROFILES, Field, Profile, When, find_profile, profile_table
from limpet.wire.stamp import Stamped, stamp
from limpet.wire.turn import TurnLike, TurnValues, turn_values

__all__ = [
    "PROFILES",
    "Field",
    "Profile",
    "Stamped",
    "TurnLike",
    "TurnValues",
    "When",
    "find_profile",
    "load_profiles",
    "profile_table",
    "stamp",
    "turn_values",
]
