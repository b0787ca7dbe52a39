"""Work on Spark while it runs: how far it is, when it has to stop, and what went wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from omnigraph.engine.engines import JobProgress
from omnigraph.errors import BudgetExceededError, CancelledError, InputError, OmnigraphError, SparkError, cut
from omnigraph.read.budget import Cancellation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAUSE = 0.2
"""Seconds between two looks at a job."""

_INPUT = f"{InputError.__module__}.{InputError.__qualname__}"
"""How the traceback of a task names what it says about the input."""


@dataclass(slots=True)
class Watch:
    """Who looks on while Spark works, and when it has to stop.

    Attributes:
        progress: is told how far the work has come. An error that it raises ends the work.
        cancel: stops the work from another thread.
        seconds: how long all of it may take, from the making of the watch.
    """

    progress: Callable[[JobProgress], None] | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    seconds: float | None = None
    _started: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """Stop here if the work has to.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: it was told to stop.
        """
        if self.cancel.cancelled:
            raise CancelledError("the work on Spark was cancelled")
        taken = time.monotonic() - self._started
        if self.seconds is not None and taken > self.seconds:
            raise BudgetExceededError("seconds", self.seconds, taken, hint="give it more time")

    @contextmanager
    def over(self, spark: SparkSession, what: str, log: str | None) -> Iterator[None]:
        """Watch the jobs that a block starts in this thread.

        Raises:
            BudgetExceededError: the deadline passed.
            CancelledError: it was told to stop.
            InputError: a task refused the input.
            SparkError: a job failed.
        """
        self.check()
        context = spark.sparkContext
        group = f"omnigraph-{uuid4().hex}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        looking = _Looking(self, context, group, what)
        try:
            yield
        except OmnigraphError:
            raise
        except Exception as error:
            looking.stop()
            if looking.failed is not None:
                raise looking.failed from None
            if interrupted(error):
                raise KeyboardInterrupt from None
            failure = _failure(error, what, log)
            if failure is None:
                raise
            raise failure from error
        finally:
            looking.stop()
            for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]  # which is how it is unset


class _Looking:
    """A thread that looks at a job from time to time."""

    def __init__(self, watch: Watch, context: Any, group: str, what: str) -> None:
        self._watch = watch
        self._context = context
        self._group = group
        self._what = what
        self._ended = Event()
        self._said: JobProgress | None = None
        self.failed: BaseException | None = None
        """Why the work was stopped from here."""
        self._thread = Thread(target=self._look, name="omnigraph-spark-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_PAUSE):
            try:
                self._watch.check()
                self._tell()
            except Exception as error:
                self.failed = error
                # Again and again: a job that is only just being made is not in the group yet.
                while not self._ended.is_set():
                    with suppress(Exception):
                        self._context.cancelJobGroup(self._group)
                    self._ended.wait(_PAUSE)
                return
        with suppress(Exception):
            self._tell()

    def _tell(self) -> None:
        if self._watch.progress is None:
            return
        now = _progress(self._context, self._group, self._what)
        if now is not None and now != self._said:
            self._said = now
            self._watch.progress(now)


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
    """Whether an error came up while Ctrl-C was dealt with: Spark cancels its jobs then, and tells of that instead."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, KeyboardInterrupt):
            return True
        found = found.__cause__ or found.__context__
    return False


def _failure(error: Exception, what: str, log: str | None) -> OmnigraphError | None:
    """What a failure of Spark says, in a line. None for what is no failure of Spark."""
    module = type(error).__module__
    if not module.startswith(("pyspark", "py4j")):
        return None
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The last line of a Python traceback is what went wrong; Java's begins with it.
    telling = [line for line in lines if not line.startswith(("File ", "at ", "Traceback", ":", "JVM stacktrace"))]
    python = [line for line in telling if ": " in line and line.split(":")[0].endswith(("Error", "Exception"))]
    reason = (python or telling or [type(error).__name__])[-1 if python else 0]
    refused = re.fullmatch(rf"{re.escape(_INPUT)}: (.+)", reason)
    if refused is not None:
        return InputError(refused[1])  # a task found it in the input: Spark did nothing wrong
    return SparkError(f"{what} failed: {cut(reason)}", log=log)
