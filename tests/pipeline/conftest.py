"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.commit.conftest import _no_fsync

from omnigraph.pipeline.session import Session, SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["_no_fsync", "session", "spark"]

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = SparkSettings(
    master="local[2,4]",
    memory="2g",
    options={"spark.driver.extraJavaOptions": _QUICK_START, "spark.sql.shuffle.partitions": "2"},
    archive=False,
)


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    """The session; mark tests that ask for it with `spark`."""
    made = Session(_SETTINGS)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def spark(session: Session) -> SparkSession:
    """The same, as Spark knows it."""
    return session.spark
