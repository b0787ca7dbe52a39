"""Spark: one session for the process, started when it is first needed and then kept.

Whatever the process finds is used: a session that is there, what `spark-submit` was told, a master that is named. With
none of that it is this machine, all its cores, and four attempts for each task.
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
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import InputError, SparkError, SparkUnavailableError
from omnigraph.pipeline.spark.jobs import Watch, interrupted
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
"""All cores of this machine. A task is tried four times: `local[*]` alone never tries again."""

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
    "spark.sql.adaptive.enabled": "false",  # blocks are few and large, and lie where they should
}
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_JAVA_FLAGS = "-XX:+DisplayVMOutputToStderr -Xlog:disable -Xlog:all=warning:stderr"
"""What Java itself has to say goes to the log: stdout belongs to the results of a command."""

_SHIPPED = ("OMNIGRAPH_", "AWS_", "TMPDIR")
"""Variables that tasks need as the driver has them, by how their names begin."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is started, if it has to be.

    Attributes:
        master: where it runs; by default what the environment says, else this machine.
        memory: how much memory the driver's Java may take.
        options: further settings of Spark. May hold credentials, so they are never shown.
        archive: keep the classes that Java loads in a file, which halves the time of the next start.
    """

    master: str | None = None
    memory: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    archive: bool = True


class Session:
    """The session of this process. Safe to use from many threads.

    Args:
        settings: how it is started.
    """

    def __init__(self, settings: SparkSettings | None = None) -> None:
        self.settings = settings or SparkSettings()
        self.log: Path | None = None
        self._spark: SparkSession | None = None
        self._work: SparkSession | None = None
        self._owned = False
        self._archive: tuple[Path, Path] | None = None
        self._log_counts = False
        self._lock = RLock()

    @property
    def spark(self) -> SparkSession:
        """The session, started if it has to be.

        Raises:
            SparkUnavailableError: it cannot be started.
        """
        with self._lock:
            if self._spark is None or self._stopped(self._spark):
                self._start()
            assert self._spark is not None
            return self._spark

    @property
    def work(self) -> SparkSession:
        """A session of our own beside it, in which blocks of bytes cross to Python in batches that fit memory."""
        with self._lock:
            spark = self.spark
            if self._work is None or self._stopped(self._work):
                self._work = spark.newSession()
                for name, value in _WORK_SETTINGS.items():
                    self._work.conf.set(name, value)
            return self._work

    @property
    def started(self) -> bool:
        """Whether there is a session already."""
        return self._spark is not None

    def warm(self) -> None:
        """Start Spark, and the Python processes of its tasks, so that the next job need not wait for either.

        A process that serves others calls it in a thread of its own when it begins, and keeps the session.

        Raises:
            SparkUnavailableError: it cannot be started.
            SparkError: its tasks cannot run.
        """
        with self.job("getting ready") as spark:
            tasks = self.parallelism
            spark.range(0, tasks, 1, tasks).mapInArrow(_ready, "id long").toArrow()

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        return int(self.spark.sparkContext.defaultParallelism)

    @contextmanager
    def job(self, what: str, watch: Watch | None = None) -> Iterator[SparkSession]:
        """Run work on Spark under a name: it can be watched, cancelled and given a deadline.

        Args:
            what: what is done, for progress and logs.
            watch: who looks on, and when it has to stop.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: it was told to stop.
            SparkError: it failed.
        """
        spark = self.spark
        try:
            with (watch or Watch()).over(spark, what, str(self.log) if self.log else None):
                yield self.work
        except SparkError:
            self._log_counts = True
            raise

    def stop(self) -> None:
        """End the session, and the Java process if this class started it. The log stays if somebody was told of it."""
        with self._lock:
            spark, self._spark, self._work = self._spark, None, None
            if spark is None or not self._owned:
                return
            with suppress(Exception):
                spark.stop()
            _end_java()
            self._keep_archive()
            if self.log is not None and not self._log_counts:
                shutil.rmtree(self.log.parent, ignore_errors=True)
            self.log, self._log_counts = None, False

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
        master = options.get("spark.master") or _told(os.environ).get("spark.master")
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
            with _errors_to(self.log), _no_copy() as started, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._spark = builder.getOrCreate()
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            logging.getLogger("SQLQueryContextLogger").disabled = True  # prints the stack of Java; errors say enough
            _ship_wheel(self._spark)
        except Exception as error:
            reason = start_failure(error, self.log, master)
            self._give_up(started)
            if interrupted(error):
                shutil.rmtree(directory, ignore_errors=True)
                raise KeyboardInterrupt from None
            raise SparkUnavailableError(f"Spark does not start: {reason}", hint=f"the log is {self.log}") from error
        except BaseException:
            self._give_up(started)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        atexit.register(self.stop)

    def _give_up(self, started: Sequence[Any]) -> None:
        """End a Java process that was started in vain, so that the next attempt starts one with its own settings."""
        self._spark = None
        if self._owned:
            _end_java()
        for process in started:  # of which Spark does not know yet
            with suppress(OSError):
                process.kill()
                process.wait()

    def _options(self) -> dict[str, str]:
        given, environ = self.settings, os.environ
        told = _told(environ)
        options = {name: value for name, value in _SETTINGS.items() if name not in told}
        master = given.master or SPARK_MASTER.get()
        if master is None and "spark.master" not in told:
            master = MASTER.get() or DEFAULT_MASTER
        if master is not None:
            options["spark.master"] = master
        if master is not None and master.startswith("local"):
            options |= _LOCAL_SETTINGS
        memory = given.memory or SPARK_MEMORY.get()
        if memory is not None:
            options["spark.driver.memory"] = memory
        if "spark.pyspark.python" not in given.options:
            environ.setdefault(PYSPARK_PYTHON.name, sys.executable)  # the only way to give tasks this interpreter
        for name, value in environ.items():
            if name.startswith(_SHIPPED) and f"spark.executorEnv.{name}" not in told:
                options[f"spark.executorEnv.{name}"] = value
        options |= given.options
        if self._owned:
            before = options.get("spark.driver.extraJavaOptions", told.get("spark.driver.extraJavaOptions", ""))
            flags = f"{_JAVA_FLAGS} {self._archive_flag() if given.archive else ''}"
            options["spark.driver.extraJavaOptions"] = f"{flags.strip()} {before}".strip()
        return options

    def _archive_flag(self) -> str:
        """What makes Java use the archive of classes, or write it when it ends."""
        import pyspark

        directory = cache_directory(os.environ)
        if directory is None:
            return ""
        name = blake2b(f"{pyspark.__version__} {java_path(os.environ)}".encode(), digest_size=8).hexdigest()
        kept = directory / "spark" / f"classes-{name}.jsa"
        if is_own_file(kept):
            return f"-XX:SharedArchiveFile={kept}"
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _log.info("no archive of classes: %s", error)
            return ""
        made = kept.with_suffix(f".{os.getpid()}.part")
        self._archive = (made, kept)
        return f"-XX:ArchiveClassesAtExit={made}"

    def _keep_archive(self) -> None:
        """Give the archive its name once Java has written it."""
        if self._archive is None:
            return
        made, kept = self._archive
        self._archive = None
        with suppress(OSError):
            if made.exists():
                made.chmod(0o644)
                made.replace(kept)


def _ready(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does that does nothing: it brings in what tasks need."""
    importlib.import_module("omnigraph.storage.tables")
    yield from batches


def check_available() -> None:
    """See whether Spark can be started here, without starting it.

    Raises:
        SparkUnavailableError: it cannot.
    """
    check_installed()
    if PYSPARK_GATEWAY_PORT.get() is None:
        check_java(os.environ)


def _told(environ: Mapping[str, str]) -> dict[str, str]:
    """What Spark was told already, by `spark-submit` or by the file with its defaults."""
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
    """Give tasks the package, when it comes from a wheel that `spark-submit --py-files` named.

    Spark copies such a file to every executor, and there looks only into files that end as it expects.
    """
    wheel = _wheel(__file__)
    if wheel is None:
        return
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-wheel-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # until then executors fetch it from here
    spark.sparkContext.addPyFile(str(shutil.copyfile(wheel, directory / f"{wheel.stem}.zip")))


def _wheel(module: str) -> Path | None:
    """The wheel that a module lies in, if it does."""
    return next((place for place in Path(module).parents if place.suffix == ".whl" and place.is_file()), None)


@contextmanager
def _no_copy() -> Iterator[list[Any]]:
    """Let Java be started without a copy of this process, which a large one is not allowed to make of itself.

    Spark asks for something to be done between the copy and the start, so that Java does not hear the interrupts of a
    terminal. A process group of its own does not hear them either.

    Yields:
        The processes that are started meanwhile.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    popen = java_gateway.Popen
    processes: list[Any] = []

    def started(command: Sequence[str], *, preexec_fn: object = None, **said: Any) -> Any:
        process = popen(command, process_group=0, **said)
        processes.append(process)
        return process

    java_gateway.Popen = started
    try:
        yield processes
    finally:
        java_gateway.Popen = popen


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Let what is started meanwhile write its errors to a file: Java and the tasks inherit where they go."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _end_java() -> None:
    """End the Java process, so that a later session starts a new one."""
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
    """The session of this process. Settings count until Spark is started.

    Raises:
        SparkError: it is started, and with another master.
    """
    global _session
    with _session_lock:
        if settings is not None and settings != _session.settings:
            if _session.started and settings.master not in (None, _session.settings.master):
                raise SparkError(f"Spark runs on {_session.spark.sparkContext.master} already", hint="stop it first")
            if not _session.started:
                _session = Session(settings)
        return _session


def session_for(options: SparkOptions) -> Session:
    """The session that a request names, by itself or by a master; by default that of the process.

    Raises:
        InputError: the session is of another type.
        SparkError: Spark runs already, with another master.
    """
    if isinstance(options.session, Session):
        return options.session
    if options.session is not None:
        hint = "give an omnigraph.pipeline session, or leave it out: a running Spark session is found"
        raise InputError(f"spark.session is a {type(options.session).__name__}", hint=hint)
    return session(None if options.master is None else SparkSettings(options.master))
