"""The current format version. A separate module, so that reading it does not import the engine."""

from __future__ import annotations

CURRENT = 3
"""The format that this release writes."""

READABLE = 2
"""The oldest format that this release reads without a migration."""
