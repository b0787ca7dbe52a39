"""Progress display of long-running work: a bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.dataclass import dataclass

if TYPE_CHECKING:
    from rich.console import Console

    from omnigraph.engine.engines import JobProgress
    from omnigraph.upkeep.vectors import EmbedProgress
    from omnigraph.write.load import LoadProgress


@dataclass(frozen=True, slots=True)
class ProgressDisplay:
    """Callbacks that display progress.

    Attributes:
        rows: shows the progress of a load.
        tasks: shows the progress of Spark: stages and tasks.
        vectors: shows the number of computed vectors.
        notes: whether to print notes, such as the chosen engine.
    """

    rows: Callable[[LoadProgress], None] | None = None
    tasks: Callable[[JobProgress], None] | None = None
    vectors: Callable[[EmbedProgress], None] | None = None
    notes: bool = False


@contextmanager
def progress_display(*, shown: bool, console: Console | None = None) -> Iterator[ProgressDisplay]:
    """Show a progress bar on stderr, if stderr is a terminal.

    Args:
        shown: whether to show anything.
        console: the target; by default stderr, if it is a terminal.
    """
    if not shown or (console is None and not sys.stderr.isatty()):
        yield ProgressDisplay(notes=shown)
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
                *([f"{progress.tasks_failed} retried"] if progress.tasks_failed else ()),
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
            done = f"{progress.rows:,} rows, {counts.computed:,} computed, {counts.cached:,} cached"
            described = f"embedding {progress.type_name}"
            bar.update(task, description=described, total=progress.total, completed=progress.rows, done=done)

        yield ProgressDisplay(show, show_tasks, show_vectors, notes=True)
