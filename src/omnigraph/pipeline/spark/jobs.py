"""Supervision of Spark jobs: progress, cancellation, deadline, and translation of errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import JobProgress
from omnigraph.errors import BudgetExceededError, CancelledError, InputError, OmnigraphError, SparkError, cut
from omnigraph.read.budget import Cancellation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE = 0.2
"""Seconds between two checks of a job."""

_INPUT = f"{InputError.__module__}.{InputError.__qualname__}"
"""The name of `InputError` in the traceback of a task."""


@dataclass(slots=True)
class JobMonitor:
    """Reports the progress of Spark jobs, and stops them at a deadline or on cancellation.

    Attributes:
        progress: is called with the progress. If it raises an error, the work stops.
        cancel: stops the work from another thread.
        seconds: the time limit of all work in seconds, from the creation of this object.
    """

    progress: Callable[[JobProgress], None] | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    seconds: float | None = None
    _started: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Raise an error if the work has to stop.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: the work was cancelled.
        """
        if self.cancel.cancelled:
            raise CancelledError("the work on Spark was cancelled")
        taken = time.monotonic() - self._started
        if self.seconds is not None and taken > self.seconds:
            raise BudgetExceededError("seconds", self.seconds, taken, hint="increase the time limit (seconds=)")

    @contextmanager
    def supervise(self, spark: SparkSession, what: str, log: str | None) -> Iterator[None]:
        """Supervise the jobs that the code of a `with` block starts in this thread.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: the work was cancelled.
            InputError: a task rejected the input.
            SparkError: a job failed.
        """
        self.check()
        context = spark.sparkContext
        group = f"omnigraph-{uuid4().hex}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        poller = _Poller(self, context, group, what)
        try:
            yield
        except OmnigraphError:
            raise
        except Exception as error:
            poller.stop()
            if poller.failed is not None:
                raise poller.failed from None
            if interrupted(error):
                raise KeyboardInterrupt from None
            failure = _failure(error, what, log)
            if failure is None:
                raise
            raise failure from error
        finally:
            poller.stop()
            with suppress(Exception):  # after an interrupt, the connection to Spark may be unusable
                for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                    context.setLocalProperty(name, None)  # type: ignore[arg-type]  # None removes the property


class _Poller:
    """A thread that polls the progress of a job."""

    def __init__(self, monitor: JobMonitor, context: Any, group: str, what: str) -> None:
        self._monitor = monitor
        self._context = context
        self._group = group
        self._what = what
        self._ended = Event()
        self._last: JobProgress | None = None
        self.failed: BaseException | None = None
        """The error because of which this thread cancelled the work."""
        self._thread = Thread(target=self._poll, name="omnigraph-spark-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ended.wait(_PAUSE):
            try:
                self._monitor.check()
                self._report()
            except Exception as error:
                self.failed = error
                # Cancel repeatedly: a job that Spark is just creating does not belong to the job group yet.
                while not self._ended.is_set():
                    with suppress(Exception):
                        self._context.cancelJobGroup(self._group)
                    self._ended.wait(_PAUSE)
                return
        with suppress(Exception):
            self._report()

    def _report(self) -> None:
        if self._monitor.progress is None:
            return
        now = _progress(self._context, self._group, self._what)
        if now is not None and now != self._last:
            self._last = now
            self._monitor.progress(now)


def _progress(context: Any, group: str, what: str) -> JobProgress | None:
    tracker = context.statusTracker()
    stages = []
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages += [] if info is None else [tracker.getStageInfo(stage) for stage in info.stageIds]
    known = [stage for stage in stages if stage is not None]
    if not known:
        return None
    done = sum(stage.numCompletedTasks >= stage.numTasks for stage in known)
    return JobProgress(
        what,
        len(stages),
        done,
        sum(stage.numTasks for stage in known),
        sum(min(stage.numCompletedTasks, stage.numTasks) for stage in known),
        sum(stage.numFailedTasks for stage in known),
    )


def interrupted(error: BaseException) -> bool:
    """Whether Ctrl-C caused an error. After Ctrl-C, Spark cancels its jobs and raises a cancellation error."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            return True
        found = found.__cause__ or found.__context__
    return False


def _failure(error: Exception, what: str, log: str | None) -> OmnigraphError | None:
    """Translate an error of Spark to an error with a one-line message; None for other errors."""
    module = type(error).__module__
    if not module.startswith(("pyspark", "py4j")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A Python traceback has the error in its last line, and a Java stack trace in its first line.
    messages = [line for line in lines if not line.startswith(("File ", "at ", "Traceback", ":", "JVM stacktrace"))]
    python = [line for line in messages if ": " in line and line.split(":")[0].endswith(("Error", "Exception"))]
    reason = (python or messages or [type(error).__name__])[-1 if python else 0]
    refused = re.fullmatch(rf"{re.escape(_INPUT)}: (.+)", reason)
    if refused is not None:
        return InputError(refused[1])  # a task rejected the input, so this is not a failure of Spark
    return SparkError(f"{what} failed: {cut(reason)}", log=log)
