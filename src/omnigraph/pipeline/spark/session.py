"""The Spark session of the process. It is started on first use and then kept.

If the process already has a Spark session, it is used. Otherwise a session is started with the settings of
`spark-submit`, or with a given master. The default is all cores of this machine, with four attempts per task.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import InputError, SparkError, SparkUnavailableError
from omnigraph.pipeline.spark.jobs import JobMonitor, interrupted
from omnigraph.pipeline.spark.preflight import check_installed, check_java, check_settings, java_path, start_failure
from omnigraph.settings import (
    MASTER,
    PYSPARK_GATEWAY_PORT,
    PYSPARK_PYTHON,
    SPARK_CONF_DIR,
    SPARK_HOME,
    SPARK_MASTER,
    SPARK_MEMORY,
)
from omnigraph.storage.files.cache_directory import cache_directory, is_own_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = SPARK_MASTER.default
"""All cores of this machine, with four attempts per task. With `local[*]`, Spark would never retry a task."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
}
_WORK_SETTINGS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Adaptive execution is not useful: blocks are few and large, and each is already in its final partition.
    "spark.sql.adaptive.enabled": "false",
}
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_JAVA_FLAGS = "-XX:+DisplayVMOutputToStderr -Xlog:disable -Xlog:all=warning:stderr"
"""Flags that send messages of the JVM to the log, because stdout is used for results."""

_TASK_VARIABLES = ("OMNIGRAPH_", "AWS_", "TMPDIR")
"""Prefixes of the environment variables that are passed on to tasks."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Settings for starting Spark.

    Attributes:
        master: the Spark master; by default the master that the environment names, else this machine.
        memory: the memory of the driver's JVM.
        options: further settings of Spark. May hold credentials, so `repr` leaves them out.
        archive: whether Java stores its loaded classes in a file. This halves the time of the next start.
    """

    master: str | None = None
    memory: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    archive: bool = True


class Session:
    """The Spark session of this process. Thread-safe.

    Args:
        settings: the settings for starting Spark.
    """

    def __init__(self, settings: SparkSettings | None = None) -> None:
        self.settings = settings or SparkSettings()
        self.log: Path | None = None
        self._spark: SparkSession | None = None
        self._work: SparkSession | None = None
        self._owned = False
        self._archive: tuple[Path, Path] | None = None
        self._log_reported = False
        self._lock = RLock()

    @property
    def spark(self) -> SparkSession:
        """The session. Started on first use.

        Raises:
            SparkUnavailableError: Spark cannot be started.
        """
        with self._lock:
            if self._spark is None or self._stopped(self._spark):
                self._start()
            assert self._spark is not None
            return self._spark

    @property
    def work(self) -> SparkSession:
        """A separate Spark session for OmniGraph. It passes data to Python in batches that fit into memory."""
        with self._lock:
            spark = self.spark
            if self._work is None or self._stopped(self._work):
                self._work = spark.newSession()
                for name, value in _WORK_SETTINGS.items():
                    self._work.conf.set(name, value)
            return self._work

    @property
    def started(self) -> bool:
        """Whether the session is started."""
        return self._spark is not None

    def warm(self) -> None:
        """Start Spark and the Python processes of its tasks, so that the next job starts fast.

        A server calls it in a background thread at start.

        Raises:
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks cannot run.
        """
        with self.job("warming up") as spark:
            tasks = self.parallelism
            spark.range(0, tasks, 1, tasks).mapInArrow(_import_modules, "id long").toArrow()

    @property
    def parallelism(self) -> int:
        """The number of tasks that run at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    @contextmanager
    def job(self, what: str, monitor: JobMonitor | None = None) -> Iterator[SparkSession]:
        """Run the code of a `with` block as a named job on Spark, with progress, cancellation and a deadline.

        Args:
            what: the name of the job, for progress and logs.
            monitor: reports progress and stops the work.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: the work was cancelled.
            SparkError: the job failed.
        """
        spark = self.spark
        try:
            with (monitor or JobMonitor()).supervise(spark, what, str(self.log) if self.log else None):
                yield self.work
        except SparkError:
            self._log_reported = True
            raise

    def stop(self) -> None:
        """Stop the session and the Java process, if this class started them.

        Removes the log file, unless an error message refers to it.
        """
        with self._lock:
            spark, self._spark, self._work = self._spark, None, None
            if spark is None or not self._owned:
                return
            with suppress(Exception):
                spark.stop()
            _end_java()
            self._publish_archive()
            if self.log is not None and not self._log_reported:
                shutil.rmtree(self.log.parent, ignore_errors=True)
            self.log, self._log_reported = None, False

    def _stopped(self, spark: SparkSession) -> bool:
        return spark.sparkContext._jsc is None

    def _start(self) -> None:
        check_installed()
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        found = SparkSession.getActiveSession()
        if found is not None and not self._stopped(found):
            self._spark, self._owned = found, False
            _ship_wheel(found)
            return
        self._owned = SparkContext._gateway is None and PYSPARK_GATEWAY_PORT.get() is None
        options = self._options()
        master = options.get("spark.master") or _present_settings(os.environ).get("spark.master")
        if self._owned:
            check_java(os.environ)
            check_settings(master, options.get("spark.driver.memory"))
        builder = SparkSession.builder.appName("omnigraph")
        for name, value in options.items():
            builder = builder.config(name, value)
        started: list[Any] = []
        directory = Path(tempfile.mkdtemp(prefix="omnigraph-spark-"))
        self.log = directory / "spark.log"
        try:
            with _stderr_to(self.log), _without_fork() as started, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._spark = builder.getOrCreate()
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            # This logger prints Java stack traces. They are not needed, because the raised errors contain the message.
            logging.getLogger("SQLQueryContextLogger").disabled = True
            _ship_wheel(self._spark)
        except Exception as error:
            reason = start_failure(error, self.log, master)
            self._abort_start(started)
            if interrupted(error):
                shutil.rmtree(directory, ignore_errors=True)
                raise KeyboardInterrupt from None
            raise SparkUnavailableError(f"Spark does not start: {reason}", hint=f"the log is {self.log}") from error
        except BaseException:
            self._abort_start(started)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        atexit.register(self.stop)

    def _abort_start(self, started: Sequence[Any]) -> None:
        """End the Java process of a failed start, so that the next attempt starts a new one with its own settings."""
        self._spark = None
        if self._owned:
            _end_java()
        for process in started:  # Spark does not stop these processes if the start failed
            with suppress(OSError):
                process.kill()
                process.wait()

    def _options(self) -> dict[str, str]:
        given, environ = self.settings, os.environ
        present = _present_settings(environ)
        options = {name: value for name, value in _SETTINGS.items() if name not in present}
        master = given.master or SPARK_MASTER.get()
        if master is None and "spark.master" not in present:
            master = MASTER.get() or DEFAULT_MASTER
        if master is not None:
            options["spark.master"] = master
        if master is not None and master.startswith("local"):
            options |= _LOCAL_SETTINGS
        memory = given.memory or SPARK_MEMORY.get()
        if memory is not None:
            options["spark.driver.memory"] = memory
        if "spark.pyspark.python" not in given.options:
            environ.setdefault(
                PYSPARK_PYTHON.name, sys.executable
            )  # this variable makes tasks run with the Python interpreter of this process; there is no other way
        for name, value in environ.items():
            if name.startswith(_TASK_VARIABLES) and f"spark.executorEnv.{name}" not in present:
                options[f"spark.executorEnv.{name}"] = value
        options |= given.options
        if self._owned:
            before = options.get("spark.driver.extraJavaOptions", present.get("spark.driver.extraJavaOptions", ""))
            flags = f"{_JAVA_FLAGS} {self._archive_flag() if given.archive else ''}"
            options["spark.driver.extraJavaOptions"] = f"{flags.strip()} {before}".strip()
        return options

    def _archive_flag(self) -> str:
        """The flag that makes Java use the class archive, or write it at exit."""
        import pyspark

        directory = cache_directory(os.environ)
        if directory is None:
            return ""
        name = blake2b(f"{pyspark.__version__} {java_path(os.environ)}".encode(), digest_size=8).hexdigest()
        archive = directory / "spark" / f"classes-{name}.jsa"
        if is_own_file(archive):
            return f"-XX:SharedArchiveFile={archive}"
        try:
            archive.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _log.info("no class archive: %s", error)
            return ""
        temporary = archive.with_suffix(f".{os.getpid()}.part")
        self._archive = (temporary, archive)
        return f"-XX:ArchiveClassesAtExit={temporary}"

    def _publish_archive(self) -> None:
        """Rename the class archive to its final name after Java has written it."""
        if self._archive is None:
            return
        temporary, archive = self._archive
        self._archive = None
        with suppress(OSError):
            if temporary.exists():
                temporary.chmod(0o644)
                temporary.replace(archive)


def _import_modules(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task of `warm`: imports the modules that tasks need."""
    importlib.import_module("omnigraph.storage.tables")
    yield from batches


def check_available() -> None:
    """Check whether Spark can be started here, without starting it.

    Raises:
        SparkUnavailableError: it cannot be started.
    """
    check_installed()
    if PYSPARK_GATEWAY_PORT.get() is None:
        check_java(os.environ)


def _present_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that Spark already has, from `spark-submit` or from `spark-defaults.conf`."""
    if PYSPARK_GATEWAY_PORT.get(environ) is not None:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    home = SPARK_HOME.get(environ)
    directory = SPARK_CONF_DIR.get(environ) or (None if home is None else f"{home}/conf")
    if directory is None:
        return {}
    try:
        lines = (Path(directory) / "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    parts = (re.split(r"\s*[=:\s]\s*", line.strip(), maxsplit=1) for line in lines)
    return {part[0]: part[1] for part in parts if len(part) == 2 and not part[0].startswith("#")}


def _ship_wheel(spark: SparkSession) -> None:
    """Send the package to the tasks, if it was imported from a wheel of `spark-submit --py-files`.

    Spark copies the wheel to every executor, but an executor does not import from files with the suffix `.whl`. So the
    wheel is sent again, as a `.zip` file.
    """
    wheel = _wheel(__file__)
    if wheel is None:
        return
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-wheel-"))
    # The file is removed at exit, because executors fetch it while this process runs.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    spark.sparkContext.addPyFile(str(shutil.copyfile(wheel, directory / f"{wheel.stem}.zip")))


def _wheel(module: str) -> Path | None:
    """The wheel that contains a module; None if it is not in a wheel."""
    return next((path for path in Path(module).parents if path.suffix == ".whl" and path.is_file()), None)


@contextmanager
def _without_fork() -> Iterator[list[Any]]:
    """Start Java without fork, because fork may fail in a process with much memory.

    Spark makes Java ignore Ctrl-C with a function that runs between fork and exec. Without fork, a separate process
    group has the same effect.

    Yields:
        The processes that the code of the `with` block starts.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    popen = java_gateway.Popen
    processes: list[Any] = []

    def started(command: Sequence[str], *, preexec_fn: object = None, **options: Any) -> Any:
        process = popen(command, process_group=0, **options)
        processes.append(process)
        return process

    java_gateway.Popen = started
    try:
        yield processes
    finally:
        java_gateway.Popen = popen


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect stderr to a file in a `with` block. Java and its tasks, which are started in the block, inherit it."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _end_java() -> None:
    """Stop the Java process, so that a later session starts a new one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    with suppress(Exception):
        gateway.shutdown()
    if process is not None:
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(60)
        except Exception:
            process.send_signal(signal.SIGKILL)
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


_session = Session()
_session_lock = RLock()


def session(settings: SparkSettings | None = None) -> Session:
    """The session of this process. Settings have no effect after Spark was started.

    Raises:
        SparkError: Spark already runs with another master.
    """
    global _session
    with _session_lock:
        if settings is not None and settings != _session.settings:
            if _session.started and settings.master not in (None, _session.settings.master):
                raise SparkError(
                    f"Spark already runs with the master {_session.spark.sparkContext.master}",
                    hint="stop that session first, or omit the master",
                )
            if not _session.started:
                _session = Session(settings)
        return _session


def session_for(options: SparkOptions) -> Session:
    """The session of a request: the given session, a session for the given master, or the session of the process.

    Raises:
        InputError: the given session is not a `Session` of this module.
        SparkError: Spark already runs with another master.
    """
    if isinstance(options.session, Session):
        return options.session
    if options.session is not None:
        hint = "pass an omnigraph.pipeline Session, or omit the option: a running Spark session is found automatically"
        raise InputError(f"the option spark.session must not be a {type(options.session).__name__}", hint=hint)
    return session(None if options.master is None else SparkSettings(options.master))
