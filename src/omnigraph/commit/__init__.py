"""Commits: the manifest, and the protocol by which a write to many tables becomes visible at once."""
