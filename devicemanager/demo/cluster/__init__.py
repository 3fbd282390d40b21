"""A stand-in for a Kubernetes cluster, for the demo and for tests. Nothing in here runs in production.

It knows neither the demo nor our programs: both are its clients, as they are a real cluster's.
"""
