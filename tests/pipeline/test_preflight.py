"""Obstacles to starting Spark are reported at once and in plain words: masters, memory, Java."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from omnigraph.errors import SparkUnavailableError
from omnigraph.pipeline.spark.preflight import check_java, check_settings, start_failure


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[*,4]",
        "local[2, 3]",
        "local-cluster[1,2,512]",
        "yarn",
        "k8s://https://h:443",
    ],
)
def test_valid_masters_are_accepted(master: str) -> None:
    check_settings(master, None)


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("local[x]", "'local[x]' is not a Spark master"),
        ("local[0]", "'local[0]' is not a Spark master"),
        ("local [2]", "is not a Spark master"),
        ("lokal", "is not a Spark master"),
        ("sparky://here:7077", "did you mean spark://here:7077?"),
        ("http://here", "'http://here' is not a Spark master"),
        ("spark://here", "'here' is not host:port"),
        ("spark://here:99999", "is not host:port"),
        ("spark://", "is not host:port"),
    ],
)
def test_invalid_masters_are_refused(master: str, said: str) -> None:
    with pytest.raises(SparkUnavailableError) as refused:
        check_settings(master, None)
    assert said in refused.value.message
    assert "local[*,4]" in str(refused.value.hint)


@pytest.mark.slow
def test_a_master_that_refuses_connections_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_settings(f"spark://127.0.0.1:{port}", None)
        check_settings(f"spark://127.0.0.1:1,127.0.0.1:{port}", None)  # one of several is enough
    before = time.monotonic()
    with pytest.raises(SparkUnavailableError, match=f"no Spark master answers at spark://127.0.0.1:{port}: connection"):
        check_settings(f"spark://127.0.0.1:{port}", None)
    with pytest.raises(SparkUnavailableError, match="unknown host"):
        check_settings("spark://nowhere.invalid:7077", None)
    assert time.monotonic() - before < 60


def test_a_master_that_does_not_respond_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("omnigraph.pipeline.spark.preflight.socket.create_connection", silent)
    with pytest.raises(SparkUnavailableError, match="no answer within 5 seconds"):
        check_settings("spark://[::1]:7077", None)


@pytest.mark.parametrize("memory", ["2x", "", "lots", "2gb", "-1g", "1.5g"])
def test_an_invalid_amount_of_memory_is_refused(memory: str) -> None:
    check_settings(None, "512m")
    with pytest.raises(SparkUnavailableError, match="is not an amount of memory"):
        check_settings(None, memory)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "Spark needs Java 17 or newer"),
        ("echo 'java version \"1.8.0_402\"' >&2", "is 8"),
        ("echo 'no runtime here' >&2; exit 1", "does not run: no runtime here"),
        ("exit 3", "does not run: exit code 3"),
    ],
)
def test_an_old_or_broken_java_without_a_release_file_is_refused(tmp_path: Path, script: str, said: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    with pytest.raises(SparkUnavailableError) as refused:
        check_java({"JAVA_HOME": str(tmp_path)})
    assert said in refused.value.message
    assert "install Java 17" in str(refused.value.hint)
    java.chmod(0o644)
    with pytest.raises(
        SparkUnavailableError,
        match=rf"JAVA_HOME is wrong: there is no {tmp_path}/bin/java\n.* correct it, or unset it",
    ):
        check_java({"JAVA_HOME": str(tmp_path)})


def test_a_recent_java_without_a_release_file_is_accepted(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o755)
    check_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("error", "log", "said"),
    [
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "", "Java exited at once"),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            "Error occurred during initialization of VM\nToo small maximum heap\n",
            "Java exited at once: Too small maximum heap",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            'Exception in thread "main" org.apache.spark.SparkException: HADOOP_CONF_DIR must be set.\n\tat x\n',
            "Java exited at once: HADOOP_CONF_DIR must be set.",
        ),
        ("anything", "ERROR x: All masters are unresponsive! Giving up.", "no Spark master of this version answers"),
        ("first\nsecond", "", "first"),
        ("", "", "RuntimeError"),
    ],
)
def test_a_failed_start_is_reported_in_one_line(tmp_path: Path, error: str, log: str, said: str) -> None:
    file = tmp_path / "spark.log"
    file.write_text(log)
    told = start_failure(RuntimeError(error), file, "spark://here:7077")
    assert said in told
    assert "\n" not in told


def test_the_cause_of_a_java_error_is_reported(tmp_path: Path) -> None:
    class Java:
        def __init__(self, message: str | None, cause: Java | None = None) -> None:
            self.getMessage = lambda: message
            self.getCause = lambda: cause

    error = RuntimeError("An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.")
    error.java_exception = Java("outer", Java("java.net.BindException: Cannot assign requested address"))  # type: ignore[attr-defined]
    assert start_failure(error, tmp_path / "none", None) == "Cannot assign requested address"
