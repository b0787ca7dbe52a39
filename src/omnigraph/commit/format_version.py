"""The current format version. A separate module, so that reading it does not import the engine."""

from __future__ import annotations

CURRENT = 2
"""The format that this release writes."""
