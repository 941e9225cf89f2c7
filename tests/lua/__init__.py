"""One test module per script of lua/, on real servers, with an injected clock."""
