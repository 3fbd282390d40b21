"""Mutated inputs for every parser of what peers and callers send: ``tox -e fuzz``, and a few in the suite."""
