"""The release after this one, made from this one: it reads and can write a schema 2. And replicas of either kind."""
