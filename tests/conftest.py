"""Fixtures shared by every room."""
