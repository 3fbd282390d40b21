"""The whole chain on one machine, with a stand-in for the cluster. Nothing in here runs in production."""
