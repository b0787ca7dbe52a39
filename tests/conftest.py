"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from tests.s3_server import S3Root, S3Server, running

from omnigraph.pipeline.spark.session import SparkSettings, session

ROOT = Path(__file__).parents[1]

# A busy machine is no reason to fail a property. Developers explore new examples with every run; where a change is
# judged (CI is set), the same examples are tried each time, so that the verdict is about the change.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("omnigraph", _patient)
settings.register_profile("judge", _patient, derandomize=True, database=None, print_blob=True)
settings.load_profile("judge" if os.environ.get("CI") else "omnigraph")


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Derived files of tests do not go where those of the user are."""
    os.environ["OMNIGRAPH_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def spark_settings() -> Iterator[None]:
    """There is one Spark session in a process: whichever test starts it, it is this one, and it finds the tests."""
    options = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    made = session(SparkSettings(master="local[2,4]", memory="2g", options=options, archive=False))
    yield
    made.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server, started for the tests that ask for it. Mark those with `s3`."""
    with running() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> S3Root:
    """An empty place in S3 for one test."""
    return s3_server.root(uuid4().hex)
