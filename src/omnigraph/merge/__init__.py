"""Merging: what two branches have done since they parted, brought together as one commit."""
