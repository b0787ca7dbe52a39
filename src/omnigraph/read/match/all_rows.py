"""AllRows: produce all rows of a match."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.read.match.pipeline import MatchRun, Pipeline
from omnigraph.read.rows.frame import Frame


@dataclass(frozen=True, slots=True)
class AllRows:
    """Produce all rows of the match, with one pipeline."""

    pipeline: Pipeline

    @property
    def rows(self) -> float:
        """Estimated number of rows of the match."""
        return self.pipeline.rows

    def execute(self, match: MatchRun) -> tuple[Frame, None]:
        """All rows of the match."""
        return self.pipeline.execute(match.start(), match), None
