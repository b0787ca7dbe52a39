"""Spark starts on first use, and a missing requirement is reported in one line."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkException
from tests.patience import until
from tests.pipeline.in_process import InProcess

from omnigraph.engine.engines import JobProgress
from omnigraph.errors import BudgetExceededError, CancelledError, InputError, SparkError, SparkUnavailableError
from omnigraph.pipeline.spark import session as sessions
from omnigraph.pipeline.spark.jobs import JobMonitor
from omnigraph.pipeline.spark.preflight import java_path
from omnigraph.pipeline.spark.session import Session, SparkSettings, _without_fork
from omnigraph.read.budget import Cancellation
from omnigraph.settings import SPARK_MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _java_home(place: Path, version: str) -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "java").touch(0o755)
    (place / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return place


@pytest.mark.parametrize(
    ("version", "good"), [("1.8.0_402", False), ("11.0.2", False), ("17.0.15", True), ("21", True)]
)
def test_java_must_be_recent_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, good: bool) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_java_home(tmp_path / "java", version)))
    if good:
        sessions.check_available()
        return
    with pytest.raises(SparkUnavailableError, match="Java 17 or newer") as refused:
        sessions.check_available()
    assert "apt install openjdk-17" in str(refused.value.hint)


@pytest.mark.spark
def test_a_session_can_be_warmed_up(session: Session) -> None:
    """For servers: Spark and the processes of its tasks start in advance."""
    session.warm()
    assert session.started
    session.warm()


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="needs Java, and none is on the PATH") as refused:
        sessions.check_available()
    assert "\n" not in refused.value.message
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkUnavailableError, match="JAVA_HOME"):
        sessions.check_available()


def test_a_missing_pyspark_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparkUnavailableError, match="pyspark is not installed") as refused:
        sessions.check_available()
    assert refused.value.hint == "pip install 'omnigraph[spark]'"


def test_the_master_comes_from_settings_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SPARK_MASTER.name, "MASTER", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    assert Session()._options()["spark.master"] == "local[*,4]"
    assert Session(SparkSettings("spark://there:7077"))._options()["spark.master"] == "spark://there:7077"
    monkeypatch.setenv(SPARK_MASTER.name, "yarn")
    assert Session()._options()["spark.master"] == "yarn"
    monkeypatch.delenv(SPARK_MASTER.name)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert Session()._options()["spark.master"] == "local[*,4]"
    said = "# ours\n\nspark.master   spark://here:7077\nspark.ui.enabled=true\nspark.executorEnv.TMPDIR: /big\n"
    (tmp_path / "spark-defaults.conf").write_text(said)
    options = Session()._options()
    assert {"spark.master", "spark.ui.enabled", "spark.executorEnv.TMPDIR"}.isdisjoint(options)
    assert options["spark.sql.session.timeZone"] == "UTC"
    assert Session(SparkSettings("local[1]"))._options()["spark.master"] == "local[1]"
    monkeypatch.setenv("TMPDIR", "/small")
    assert "spark.executorEnv.TMPDIR" not in Session()._options()
    monkeypatch.setenv("AWS_REGION", "north")
    assert Session()._options()["spark.executorEnv.AWS_REGION"] == "north"
    assert Session(SparkSettings(options={"spark.ui.enabled": "true"}))._options()["spark.ui.enabled"] == "true"


def test_the_class_archive_is_published_by_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written under a temporary name, and renamed when it is complete."""
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path))
    first = Session()
    flag = first._archive_flag()
    assert flag.startswith("-XX:ArchiveClassesAtExit=")
    made = Path(flag.split()[0].partition("=")[2])
    made.write_bytes(b"classes")
    first._publish_archive()
    assert not made.exists()
    assert Session()._archive_flag().startswith("-XX:SharedArchiveFile=")
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", "")
    assert Session()._archive_flag() == ""


@pytest.mark.spark
def test_java_writes_nothing_to_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the archive cannot be written, Java prints a warning at its end, before a command prints its result."""
    monkeypatch.setenv("OMNIGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    starting = Session()
    starting._owned = True
    flags = starting._options()["spark.driver.extraJavaOptions"].split()
    (tmp_path / "cache" / "spark").rmdir()
    java = java_path(os.environ)
    assert java is not None
    ended = subprocess.run([java, *flags, "-version"], capture_output=True, check=False)
    assert b"Unable to" in ended.stderr
    assert ended.stdout == b""


@pytest.mark.spark
@pytest.mark.slow
def test_job_progress_is_reported(session: Session) -> None:
    seen: list[JobProgress] = []
    with session.job("counting", JobMonitor(seen.append)) as spark:
        assert spark.range(0, 100, 1, 4).count() == 100
    assert seen[-1].job == "counting"
    assert (seen[-1].tasks_done, seen[-1].tasks_failed) == (seen[-1].tasks, 0)
    assert session.log is not None
    assert session.log.exists()


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_can_be_cancelled_and_has_a_time_limit(session: Session, tmp_path: Path) -> None:
    cancel = Cancellation()

    def stop(progress: JobProgress) -> None:
        cancel.cancel()

    for watch, error in ((JobMonitor(stop, cancel), CancelledError), (JobMonitor(seconds=1.0), BudgetExceededError)):
        seen = tmp_path / error.__name__
        with pytest.raises(error), session.job("waiting", watch) as spark:
            spark.range(0, 2, 1, 2).mapInArrow(partial(_wait, seen), "id long").count()
        seen.touch()
    with session.job("again") as spark:
        assert spark.range(3).count() == 3


@pytest.mark.spark
@pytest.mark.slow
def test_a_failed_job_is_reported_in_one_line(session: Session) -> None:
    with (
        pytest.raises(SparkError, match="adding failed: ValueError: no such number") as failed,
        session.job("adding") as spark,
    ):
        spark.range(0, 2, 1, 2).mapInArrow(_failing, "id long").count()
    assert "\n" not in failed.value.message
    assert str(session.log) in str(failed.value.hint)
    session._log_reported = False  # no one reads it
    with pytest.raises(InputError) as refused, session.job("reading") as spark:
        spark.range(0, 2, 1, 2).mapInArrow(_refusing, "id long").count()
    assert refused.value.message == "a.csv, line 3: a NUL byte: is this file text?"


def test_a_reported_log_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_end_java", lambda: None)
    for failed in (True, False):
        ended = _Failing()
        ended.log = tmp_path / str(failed) / "spark.log"
        ended.log.parent.mkdir()
        ended.log.touch()
        ended._owned, log = True, ended.log
        if failed:
            with pytest.raises(SparkError) as told, ended.job("adding"):
                raise PySparkException("no such number")
            assert str(log) in str(told.value.hint)
        ended._spark = cast("SparkSession", object())
        ended.stop()
        assert log.exists() is failed


class _Failing(InProcess):
    """A session whose jobs are monitored like those of Spark."""

    job = Session.job

    @property
    def spark(self) -> Any:
        return MagicMock()


def _wait(seen: Path, batches):  # type: ignore[no-untyped-def]
    """Wait until the test has seen its error. A task that continues after a cancelled job blocks a core."""
    for batch in batches:
        until(seen.exists, pause=0.05)
        yield batch


def _refusing(batches):  # type: ignore[no-untyped-def]
    for _ in batches:
        raise InputError("a.csv, line 3: a NUL byte: is this file text?", hint="look at it")
    yield from ()


def _failing(batches):  # type: ignore[no-untyped-def]
    for _ in batches:
        raise ValueError("no such number")
    yield from ()


def test_java_is_started_without_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with more than half of the machine's memory could not start it otherwise."""
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    seen: dict[str, object] = {}
    monkeypatch.setattr(java_gateway, "Popen", lambda command, **said: seen.update(said))
    before = java_gateway.Popen
    with _without_fork():
        java_gateway.Popen(["java"], stdin=1, preexec_fn=print)
    assert seen == {"stdin": 1, "process_group": 0}
    assert java_gateway.Popen is before
