"""Optimize on Spark: tasks compact fragments and build index segments, and the driver commits.

A task receives a description of its work and returns a description of the files that it wrote. A vector index is built
by one task, because with several tasks, each segment of the index would have different partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.dataclass import dataclass
from omnigraph.pipeline.spark.tasks import SparkWork
from omnigraph.storage.compaction import CompactedGroup
from omnigraph.storage.layouts import build_index_segment, compact
from omnigraph.upkeep.optimize import BuildJob, CompactJob


@dataclass(frozen=True, slots=True)
class SparkWorkers:
    """Compacts fragments and builds index segments by tasks."""

    spark: SparkWork

    @property
    def shares(self) -> bool:
        return True

    def compact(self, jobs: Sequence[CompactJob]) -> list[CompactedGroup]:
        staging = self.spark.staging
        return self.spark.map("packing", jobs, lambda job: compact(staging.tables.at(job.ref), job.group))

    def build(self, jobs: Sequence[BuildJob]) -> list[bytes]:
        staging = self.spark.staging

        def build(job: BuildJob) -> bytes:
            return build_index_segment(staging.tables.at(job.ref), job.spec, job.parts)

        return self.spark.map("building indexes", jobs, build)
