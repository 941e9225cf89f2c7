"""``docker-compose.yml`` brought up for real."""
