"""The severity of schema changes that a caller permits."""

# See docs/decisions/0194-soft-drops-need-no-permission.md

from __future__ import annotations

from enum import StrEnum


class Allow(StrEnum):
    """The most severe effect on data that a schema change may have."""

    SAFE = "safe"
    """Only steps that are possible with any stored data."""
    VALIDATED = "validated"
    """Also steps that check the stored rows first."""
    DROPS = "drops"
    """Also drops of types and properties. Earlier commits keep the data until cleanup removes them."""
    DATA_LOSS = "data_loss"
    """Also drops that remove the data from earlier commits."""
