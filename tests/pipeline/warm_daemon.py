"""The process from which Spark forks its Python tasks, with all imports that tasks need.

Spark's default process imports almost nothing, so every new task process spends more than a second of CPU time on
imports. The tests start hundreds of task processes: each task that fails or is killed ends its process.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import omnigraph.graph
import omnigraph.pipeline.pipeline  # noqa: F401

if __name__ == "__main__":
    manager()
