"""External blobs of a load: the driver checks the references, tasks fetch the content.

The order is the same as in a local load: first all references are checked against the policy, then the existence and
size of all sources are checked, then the sources are read. The number of references is limited, so the driver can keep
all of them in memory.
"""

# See docs/decisions/0112-what-needs-the-whole-input-is-read-twice.md

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.pipeline.load.partition_task import PartReferences, PartRows, Work, staged_references, write_part
from omnigraph.pipeline.load.rules import LoadedType
from omnigraph.pipeline.spark.staging import Staging
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
from omnigraph.write.rules.constraints import ROW
from omnigraph.write.rules.duplicate_keys import RowNumbers

_NO_CONTENT = (b"", None)
"""Used as content of blobs in rows that a later record with the same id replaces, so that it is not fetched."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part with fetched blobs, and the sources that could not be read."""

    part: PartRows
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fetch:
    """The blobs that tasks fetch.

    Attributes:
        sources: the sources to read, by reference; empty if references are kept.
        kept: the references that are stored in place of the content.
        options: the storage options for S3.
    """

    sources: Mapping[str, SourceUri]
    kept: Stored
    options: Mapping[str, str] = field(repr=False)

    def part(self, work: Work, job: int, key: str, part: PartRows) -> Fetched:
        """Fetch the blobs of a part, and write its rows."""
        assert part.unfetched is not None
        rows = work.staging.table(part.unfetched)
        texts = {text for name in part.references for text in external_references(rows, name)[1].to_pylist()}
        stored: dict[str, tuple[bytes | None, str | None]] = dict.fromkeys(texts, _NO_CONTENT)
        stored |= {text: cell for text, cell in self.kept.items() if text in texts}
        wanted = {text: source for text, source in self.sources.items() if text in texts}
        failed = {}
        for text, answer in query_sources(BlobSources(self.options).read, wanted).items():
            if isinstance(answer, SourceFailedError):
                failed[text] = str(answer)
            else:
                stored[text] = (answer, None)
        fetched = replace(part, unfetched=None, references={})
        if failed:
            return Fetched(fetched, failed)
        stem = f"fetched-{job:06d}-{key.replace(':', '-')}"
        return Fetched(write_part(work, stem, key, with_cells(rows, stored), fetched), {})


class AllowedReferences:
    """The references of a load, after the check that all of them are allowed and their sources exist.

    Args:
        staging: the staging directory of the load.
        changes: the rows, by type key.
        policy: the allowed sources of blobs.
        keep_references: whether to store the references, and not the content.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
        ExternalBlobSourceError: a source does not exist, or its size cannot be read.
        ResourceLimitError: there are too many references, or too many bytes.
    """

    def __init__(
        self, staging: Staging, changes: Mapping[str, LoadedType], policy: BlobPolicy, *, keep_references: bool
    ) -> None:
        references = References()
        for _, change in sorted(changes.items()):
            for name in dict.fromkeys(name for part in change.parts for name in part.references):
                each = [
                    _without_superseded(staging, part, name, change.dropped.get(i))
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
        """Raise the error of the first source that could not be read, in the order of the references.

        Raises:
            ExternalBlobSourceError: a source could not be read.
        """
        failed = {text: reason for each in done for text, reason in each.failed.items()}
        for text in self._admission.occurrences:
            if text in failed:
                raise self._admission.failed(text, SourceFailedError(failed[text]))


def _without_superseded(staging: Staging, part: PartRows, name: str, dropped: RowNumbers | None) -> PartReferences:
    """The references of a property, without those of rows that a later record with the same id replaces."""
    found = part.references[name]
    if dropped is None:
        return found
    if found.rows.num_rows < found.total:  # the task returned only the first references, and some of them are dropped
        assert part.unfetched is not None
        return staged_references(staging.batches(part.unfetched, ["id", name]), name, dropped)
    rows = found.rows.filter(pa.array(~np.isin(found.rows[ROW].to_numpy(), dropped)))
    return PartReferences(rows, rows.num_rows)
