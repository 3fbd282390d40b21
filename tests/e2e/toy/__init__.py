"""A kind of workload for a test: a folder that is copied into a copy of the product."""
