"""The number of the format that graphs are written in. A module of its own, so that saying it loads no engine."""

from __future__ import annotations

CURRENT = 2
"""The format that this release writes."""
