"""Merging: combines the changes of two branches since their base into one commit."""
