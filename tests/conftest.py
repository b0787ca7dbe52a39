"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from tests.s3_server import S3Root, S3Server, running
from tests.temporary_files import empty, keep_in_memory
from tests.thresholds import Thresholds

from omnigraph import testing
from omnigraph.pipeline.spark.session import SparkSettings, session

ROOT = Path(__file__).parents[1]

# Tests start hundreds of Python processes. With cached bytecode, each of them starts about three times faster.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

keep_in_memory()

# Tests that need durable files set this to 1 themselves.
os.environ["OMNIGRAPH_FSYNC"] = "0"

# Spark jobs of tests are short, so the optimising compiler of Java costs more time than it saves. This variable
# reaches every driver, also in child processes, and prints nothing.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Property tests have no deadline, so that they also pass on a busy machine. Developers try new examples in every run.
# With CI set, the examples are the same each time, so that a failure is caused by the change. `make check` sets
# OMNIGRAPH_CASES and tries few examples.
_patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("omnigraph", _patient)
settings.register_profile("judge", _patient, derandomize=True, database=None, print_blob=True)
settings.register_profile("few", _patient, max_examples=20)
CASES = int(os.environ.get("OMNIGRAPH_CASES", "0"))
settings.load_profile("few" if CASES else "judge" if os.environ.get("CI") else "omnigraph")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some cases of each test when `OMNIGRAPH_CASES` is set, and order the tests for the processes."""
    if CASES:
        kept = _some_cases(items, CASES)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items[:] = _balanced(items, int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def _some_cases(items: list[pytest.Item], most: int) -> set[pytest.Item]:
    """At most this many cases of each test function, evenly spread over its parameters."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for members in cases.values():
        count = min(most, len(members))
        kept |= {members[index * (len(members) - 1) // max(1, count - 1)] for index in range(count)}
    return kept


def _balanced(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Order modules so that all processes finish at the same time, and one of them runs all Spark tests.

    `--dist worksteal` gives each process one part of the tests, of equal length. A process that has no tests left takes
    some from the end of another part. So the first part begins with Spark tests, the other parts begin with other slow
    tests, and all parts end with quick tests.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    spark: list[pytest.Item] = []
    slow: list[list[pytest.Item]] = [[] for _ in range(max(processes - 1, 1))]
    quick: list[pytest.Item] = []
    for members in modules.values():
        marks = {mark.name for item in members for mark in item.iter_markers()}
        part = spark if "spark" in marks else min(slow, key=len) if "slow" in marks else quick
        part += members
    ordered: list[pytest.Item] = []
    for part in (spark, *slow):
        beside = max(len(items) // processes - len(part), 0)
        ordered += part + quick[:beside]
        quick = quick[beside:]
    return ordered + quick


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which would visit millions of objects each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


_FAILED = pytest.StashKey[bool]()
_DIRECTORY = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Remove the files of a test that passed, after all its fixtures have ended: they may be in memory."""
    yield
    if _FAILED not in item.stash and (directory := item.stash.get(_DIRECTORY, None)) is not None:
        empty(directory)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory for one test."""
    made = tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
    request.node.stash[_DIRECTORY] = made
    return made


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep derived files and the audit of tests out of the user's directories, and the user's configuration out."""
    os.environ["OMNIGRAPH_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    os.environ["OMNIGRAPH_HOME"] = str(tmp_path_factory.mktemp("home"))
    for name in ("OMNIGRAPH_PROFILE", "OMNIGRAPH_STORE", "OMNIGRAPH_BEARER_TOKEN"):
        os.environ.pop(name, None)
    os.environ["OMNIGRAPH_DENIALS"] = str(tmp_path_factory.mktemp("audit") / "denials.jsonl")


@pytest.fixture(scope="session", autouse=True)
def spark_settings() -> Iterator[None]:
    """Configure the one Spark session of the process, so that its workers can import the tests."""
    options = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.python.daemon.module": "tests.pipeline.warm_daemon",
        "spark.sql.shuffle.partitions": "2",
    }
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    made = session(SparkSettings(master="local[2,4]", memory="2g", options=options, archive=False))
    yield
    made.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server, started for the tests that use it. Mark them with `s3`."""
    with running() as server:
        yield server


@pytest.fixture
def s3_root(s3_server: S3Server) -> S3Root:
    """An empty S3 prefix for one test."""
    return s3_server.root(uuid4().hex)


@pytest.fixture
def thresholds() -> Iterator[Thresholds]:
    """Sets public constants of a module until the end of the test: `thresholds(module, NAME=value)`."""
    with ExitStack() as changes:

        def change(module: ModuleType, **values: object) -> None:
            changes.enter_context(testing.thresholds(module, **values))

        yield change
