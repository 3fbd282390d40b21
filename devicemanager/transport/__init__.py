"""Asking peers over HTTP: one bounded exchange at a time, whose every failure is a FetchError."""
