"""Attacks on whole programs that have the chart's memory limit, while probes and honest readers go on asking."""
