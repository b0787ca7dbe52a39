"""The Spark session of the process, which all its tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.commit.conftest import _no_fsync

from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.session import session as of_this_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["_no_fsync", "session", "spark"]


@pytest.fixture(scope="session")
def session() -> Session:
    """The session; mark tests that use it with `spark`."""
    return of_this_process()


@pytest.fixture(scope="module")
def spark(session: Session) -> SparkSession:
    """Spark's own session object. If a module stops it, the next one starts it again."""
    return session.spark
