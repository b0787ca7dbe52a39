"""Checks before Spark is started, and short messages for failed starts."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph.errors import SparkUnavailableError, cut
from omnigraph.lang.names import nearest
from omnigraph.settings import JAVA_HOME, PATH

_MIN_JAVA = 17
_INSTALL_SPARK = "pip install 'omnigraph[spark]'"
_INSTALL_JAVA = "install Java 17 or newer ('apt install openjdk-17-jre-headless', 'brew install openjdk@17')"
_MASTERS = "local[*,4] is this machine; a cluster is spark://host:7077, yarn or k8s://https://host:443"

_LOCAL = re.compile(
    r"local|local\[\s*(?:[1-9]\d*|\*)\s*(?:,\s*[1-9]\d*\s*)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@\s]+):(?P<port>\d{1,5})")
_MEMORY = re.compile(r"\d+[kmgt]?", re.IGNORECASE)

_PROBE_SECONDS = 5
"""Seconds to wait until a master accepts a connection. Spark itself tries for more than a minute."""

_START_SECONDS = 15.0
_PAUSE = 0.2
"""If a master refuses connections, it may be starting: seconds to keep trying, and the pause between attempts."""

_JAVA_SECONDS = 30
"""Seconds that `java -version` may take."""


def check_installed() -> None:
    """Check that the packages pyspark and pandas are installed.

    Raises:
        SparkUnavailableError: a package is missing.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailableError("pyspark is not installed", hint=_INSTALL_SPARK)
    if importlib.util.find_spec("pandas") is None:  # Spark needs pandas to pass Arrow batches to Python
        raise SparkUnavailableError("pyspark needs pandas, which is not installed", hint=_INSTALL_SPARK)


def check_settings(master: str | None, memory: str | None) -> None:
    """Check the master and the memory setting, and connect to the master.

    Raises:
        SparkUnavailableError: a setting is not valid, or the master does not answer.
    """
    if master is not None:
        _check_master(master.strip())
    if memory is not None and not _MEMORY.fullmatch(memory):
        raise SparkUnavailableError(
            f"'{cut(memory)}' is not an amount of memory for Spark", hint="give a number with k, m, g or t, as in 2g"
        )


def _check_master(master: str) -> None:
    scheme, sign, rest = master.partition("://")
    if sign and scheme == "spark":
        _probe(master, rest)
    elif sign and scheme != "k8s":
        near = nearest(scheme, ["spark", "k8s"])
        meant = f": did you mean {near}://{rest}?" if near else ""
        raise SparkUnavailableError(f"'{cut(master)}' is not a Spark master{cut(meant)}", hint=_MASTERS)
    elif not sign and not _LOCAL.fullmatch(master) and master != "yarn":
        raise SparkUnavailableError(f"'{cut(master)}' is not a Spark master", hint=_MASTERS)


def _connect(host: str, port: int) -> None:
    """Connect to a master. If it refuses connections, it may be starting, so this tries again for a few seconds."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _probe(master: str, addresses: str) -> None:
    """Check that one of the masters accepts a connection."""
    failures = []
    for text in addresses.split(","):
        found = _ADDRESS.fullmatch(text.strip())
        if found is None or int(found["port"]) > 65535:
            raise SparkUnavailableError(
                f"'{cut(master)}' is not a Spark master: '{cut(text)}' is not host:port", hint=_MASTERS
            )
        try:
            _connect(found["host"].strip("[]"), int(found["port"]))
        except (OSError, UnicodeError) as error:
            failures.append(_unreachable(error))
        else:
            return
    raise SparkUnavailableError(
        f"no Spark master answers at {cut(master)}: {failures[0]}",
        hint="start it, correct the address, or use --master local[*,4]",
    )


def _unreachable(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_PROBE_SECONDS} seconds"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "unknown host"
    return (error.strerror or str(error)).lower()


def java_path(environ: Mapping[str, str]) -> str | None:
    """The path of the Java that Spark would start; None if there is none."""
    home = JAVA_HOME.get(environ)
    if home:
        java = Path(home) / "bin" / "java"
        return str(java.resolve()) if os.access(java, os.X_OK) and java.is_file() else None
    found = shutil.which("java", path=PATH.get(environ))
    return None if found is None else str(Path(found).resolve())


def check_java(environ: Mapping[str, str]) -> None:
    """Check that Java is installed and new enough.

    Raises:
        SparkUnavailableError: Java is missing or too old.
    """
    java = java_path(environ)
    if java is None:
        home = JAVA_HOME.get(environ)
        if home:
            message = f"Spark needs Java, and JAVA_HOME is wrong: there is no {Path(home) / 'bin' / 'java'}"
            raise SparkUnavailableError(
                message, hint=f"correct it, or unset it to use Java of the PATH; {_INSTALL_JAVA}"
            )
        raise SparkUnavailableError("Spark needs Java, and none is on the PATH", hint=_INSTALL_JAVA)
    version = _java_version(java)
    if version is not None and version < _MIN_JAVA:
        raise SparkUnavailableError(f"Spark needs Java {_MIN_JAVA} or newer; {java} is {version}", hint=_INSTALL_JAVA)


def _java_version(java: str) -> int | None:
    """The major version of Java, from its release file or from `java -version`; None if neither has it.

    Raises:
        SparkUnavailableError: Java does not run.
    """
    try:
        text = (Path(java).parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', text)
    if found is None:
        found = re.search(r'version "(?:1\.)?(\d+)', _java_output(java))
    return int(found[1]) if found else None


def _java_output(java: str) -> str:
    try:
        ran = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it does not answer"
        raise SparkUnavailableError(
            f"Spark needs Java, and {java} does not run: {reason}", hint=_INSTALL_JAVA
        ) from None
    output = f"{ran.stderr}\n{ran.stdout}".strip()
    if ran.returncode != 0:
        reason = output.splitlines()[0] if output else f"exit code {ran.returncode}"
        raise _java_error(java, reason)
    return output


def _java_error(java: str, reason: str) -> SparkUnavailableError:
    return SparkUnavailableError(f"Spark needs Java, and {java} does not run: {cut(reason)}", hint=_INSTALL_JAVA)


def start_failure(error: Exception, log: Path, master: str | None) -> str:
    """The reason why Spark did not start, in one line."""
    try:
        logged = log.read_text(errors="replace")
    except OSError:
        logged = ""
    if "All masters are unresponsive" in logged:
        return f"{cut(str(master))} accepts connections, but no Spark master of this version answers there"
    reason = _root_message(error)
    if "JAVA_GATEWAY_EXITED" in reason or "gateway process exited" in reason:
        lines = [_plain(line) for line in logged.splitlines() if _ERROR_LINE.search(line)]
        return f"Java exited at once: {cut(lines[0])}" if lines else "Java exited at once"
    return cut(reason)


_ERROR_LINE = re.compile(
    r"^(?!Error occurred during init).*(?:error|exception|invalid|unsupported|cannot|could not|not found|too small)",
    re.IGNORECASE,
)


def _plain(line: str) -> str:
    """A line of Java output without the names of threads and classes."""
    line = re.sub(r'^Exception in thread "[^"]*" ', "", line.strip())
    return re.sub(r"^[\w.$]+(?:Exception|Error): (?=.)", "", line)


def _root_message(error: Exception) -> str:
    """The message of the innermost Java cause, or the first line of the error."""
    try:
        java: Any = getattr(error, "java_exception", None)
        while java is not None and java.getCause() is not None:
            java = java.getCause()
        text = "" if java is None else str(java.getMessage() or java.getClass().getSimpleName())
    except Exception:  # this fails if Java has exited
        text = ""
    lines = (text or str(error)).strip().splitlines()
    return _plain(lines[0]) if lines else type(error).__name__
