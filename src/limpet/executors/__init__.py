"""How a call reaches the store."""
