"""``limpet gateway``: an OpenAI-compatible reverse proxy that keeps each conversation where its cache is (design, section 7).

Plain ASGI in front (:mod:`limpet.gateway.app`), aiohttp's client behind (:mod:`limpet.gateway.dispatch`); one request is one
:class:`limpet.gateway.exchange.Exchange`, its claim one :class:`limpet.gateway.lease.Lease`.
"""
