"""What ``devicemanager demo`` runs: the whole chain on one machine. Nothing in here runs in production."""
