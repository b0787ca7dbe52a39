"""Blobs of a load that are given as addresses: allowed by the driver, fetched by tasks.

All addresses are held against the policy before any source is looked at, and all sources are looked at before any is
read, as it is in one process. There are so few of them, and so little behind them, that the driver can do that.
"""

# See docs/decisions/0112-what-needs-the-whole-input-is-read-twice.md

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.pipeline.load.partition_task import PartReferences, PartRows, Work, stored_part
from omnigraph.pipeline.load.rules import Loaded
from omnigraph.storage.blob_sources import BlobSources, SourceFailedError, SourceUri
from omnigraph.write.external_blobs import (
    COPIED_BYTES,
    Admission,
    BlobPolicy,
    References,
    Stored,
    external_references,
    query_sources,
    with_cells,
)
from omnigraph.write.rules.duplicate_keys import ROW

_NOBODY = (b"", None)
"""Stands in rows that do not count."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part whose blobs are there, and those sources that could not be read."""

    part: PartRows
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fetch:
    """What tasks fetch.

    Attributes:
        sources: what to read, by reference; nothing where references are kept.
        kept: the references that are written as they are.
        options: how to reach an S3 store.
    """

    sources: Mapping[str, SourceUri]
    kept: Stored
    options: Mapping[str, str] = field(repr=False)

    def part(self, work: Work, job: int, key: str, part: PartRows) -> Fetched:
        """Bring in the blobs of a part, and write its rows."""
        assert part.aside is not None
        rows = work.place.table(part.aside)
        texts = {text for name in part.references for text in external_references(rows, name)[1].to_pylist()}
        stored: dict[str, tuple[bytes | None, str | None]] = dict.fromkeys(texts, _NOBODY)
        stored |= {text: cell for text, cell in self.kept.items() if text in texts}
        wanted = {text: source for text, source in self.sources.items() if text in texts}
        failed = {}
        for text, answer in query_sources(BlobSources(self.options).read, wanted).items():
            if isinstance(answer, SourceFailedError):
                failed[text] = str(answer)
            else:
                stored[text] = (answer, None)
        made = replace(part, aside=None, references={})
        if failed:
            return Fetched(made, failed)
        stem = f"fetched-{job:06d}-{key.replace(':', '-')}"
        return Fetched(stored_part(work, stem, key, with_cells(rows, stored), made), {})


class Admitted:
    """The references of a load, all of them allowed, and leading to something.

    Args:
        changes: the rows, by type key.
        policy: where blobs may come from.
        keep_references: whether the references are written as they are, and not what they lead to.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
        ExternalBlobSourceError: a source cannot be looked at.
        ResourceLimitError: there are too many references, or too much behind them.
    """

    def __init__(self, changes: Mapping[str, Loaded], policy: BlobPolicy, *, keep_references: bool) -> None:
        references = References()
        for _, change in sorted(changes.items()):
            for name in dict.fromkeys(name for part in change.parts for name in part.references):
                each = [
                    _counting(part.references[name], change.dropped.get(i))
                    for i, part in enumerate(change.parts)
                    if name in part.references
                ]
                rows = pa.concat_tables([found.rows for found in each])
                references.add(change.name, name, rows["id"], rows["uri"], sum(found.total for found in each))
        self._admission = Admission(policy, references)
        self._admission.probe(None if keep_references else COPIED_BYTES)
        kept = self._admission.stored_references() if keep_references else {}
        sources = {} if keep_references else dict(self._admission.resolved)
        self.fetch = Fetch(sources, kept, dict(policy.sources.options))

    def check(self, done: Iterable[Fetched]) -> None:
        """Report the first source that could not be read, in the order of the references.

        Raises:
            ExternalBlobSourceError: there is one.
        """
        failed = {text: reason for each in done for text, reason in each.failed.items()}
        for text in self._admission.occurrences:
            if text in failed:
                raise self._admission.failed(text, SourceFailedError(failed[text]))


def _counting(found: PartReferences, dropped: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> PartReferences:
    """Without the rows in whose place others count."""
    if dropped is None:
        return found
    rows = found.rows.filter(pa.array(~np.isin(found.rows[ROW].to_numpy(), dropped)))
    return PartReferences(rows, found.total - found.rows.num_rows + rows.num_rows)
