"""What a person sees while long work runs: a bar on a terminal, and nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from omnigraph.engine.engines import JobProgress
    from omnigraph.upkeep.vectors import EmbedProgress
    from omnigraph.write.load import LoadProgress


@dataclass(frozen=True, slots=True)
class Shown:
    """Who is told how far work has come.

    Attributes:
        rows: shows how far a load has come.
        tasks: shows how far Spark has come: steps and tasks.
        vectors: shows how many vectors are computed.
        notes: whether somebody wants to be told what is done.
    """

    rows: Callable[[LoadProgress], None] | None = None
    tasks: Callable[[JobProgress], None] | None = None
    vectors: Callable[[EmbedProgress], None] | None = None
    notes: bool = False


@contextmanager
def progress_shown(*, shown: bool, console: Console | None = None) -> Iterator[Shown]:
    """A bar on stderr for people who watch, and nothing in a pipe.

    Args:
        shown: whether anything is shown at all.
        console: where; by default stderr, if that is a terminal.
    """
    if not shown or (console is None and not sys.stderr.isatty()):
        yield Shown(notes=shown)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Progress(*columns, console=console or Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, done="")
        rows = ""

        def show(progress: LoadProgress) -> None:
            nonlocal rows
            rows = f"{progress.rows:,} rows" if progress.rows else ""
            bar.update(task, description=progress.phase.value, total=None, done=rows)

        def show_tasks(progress: JobProgress) -> None:
            done = [
                f"step {min(progress.stages_done + 1, progress.stages)} of {progress.stages}",
                f"{progress.tasks_done} of {progress.tasks} tasks",
                *([f"{progress.tasks_failed} tried again"] if progress.tasks_failed else ()),
                *([rows] if rows else ()),
            ]
            bar.update(
                task,
                description=progress.job,
                total=progress.tasks,
                completed=progress.tasks_done,
                done=", ".join(done),
            )

        def show_vectors(progress: EmbedProgress) -> None:
            counts = progress.counts
            done = f"{progress.rows:,} rows, {counts.computed:,} computed, {counts.cached:,} known"
            described = f"embedding {progress.type_name}"
            bar.update(task, description=described, total=progress.total, completed=progress.rows, done=done)

        yield Shown(show, show_tasks, show_vectors, notes=True)
