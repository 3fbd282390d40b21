"""Both programs for half an hour under load, rotation and failing sources: ``python -m tests.soak``."""
