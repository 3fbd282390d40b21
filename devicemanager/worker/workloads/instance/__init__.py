"""Instances: the existing operator's custom resource."""
