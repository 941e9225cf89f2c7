"""``limpet bench``: what Limpet costs here and now, beside its peers.

Each bench runs its contenders alternately (A B A B) in one run, several times, and reports medians, the spread, and ratios:
absolute figures depend on the machine and on who shares it, ratios within one run much less.
"""
