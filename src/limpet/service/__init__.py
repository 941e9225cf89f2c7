"""``limpet serve``: the coordinator over HTTP (design, section 7).

The hot routes are plain ASGI with msgspec on both sides (:mod:`limpet.service.app`); pages, probes and metrics are
comfortable Starlette routes beside them, in the same server.
"""
