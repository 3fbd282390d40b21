"""The stand-in cluster as tests use it: with faults, a log of requests, and kubelets on ports of their own."""
