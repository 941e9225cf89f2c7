"""Tries to break the guarantees of design section 3: random clients, faults, and a checker that judges from the history alone.

``history`` what is recorded, ``workload`` and ``process`` the clients, ``nemesis`` and ``faults`` what goes wrong meanwhile,
``checker`` the judge (pure: no store, no clock), ``report`` the figures, ``run`` all of it together (``limpet chaos``).
"""

__all__: list[str] = []
