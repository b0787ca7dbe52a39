"""A run of a declared pipeline: load, check, and merge or leave for review. A run that stopped goes on where it was.

What a run has done is in the graph and nowhere else: its commits carry keys that are made of its id.
"""

# See docs/decisions/0118-a-run-is-in-the-graph.md

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any

from ulid_transform import ulid_now

from omnigraph.commit.commit_metadata import LONGEST_NAME, check_text
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit
from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.engines import Choice, Engine, JobProgress, SparkOptions, parse_engine
from omnigraph.engine.load import load
from omnigraph.engine.merge import merge
from omnigraph.engine.requests import LoadRequest, MergeRequest
from omnigraph.errors import BranchNotFoundError, InputError, PipelineCheckError, PreconditionFailedError
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.checking import CheckOutcome, check_all, check_input
from omnigraph.pipeline.declared.document import Document, Then, read_document
from omnigraph.pipeline.declared.inputs import Pinned, direct_rows, load_source, pin_sources
from omnigraph.pipeline.declared.views import Views
from omnigraph.pipeline.spark.jobs import Watch
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.session import session as process_session
from omnigraph.read.budget import Cancellation
from omnigraph.storage.uri import GraphUri
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadReceipt

Marks = dict[str, str | None]
"""What tells the states of sources from others, by the names of the sources."""

LABEL = "pipeline"
"""How the labels of a run's commits begin."""

_RUN, _FILE, _SOURCES, _VARIABLES = (f"{LABEL}.{name}" for name in ("run", "file", "sources", "variables"))

_SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
"""SQL means the same everywhere: what does not fit is an error, and times are in UTC."""

_MADE_OF = {_FILE: "another declaration", _VARIABLES: "other variables", _SOURCES: "other inputs"}


class Stage(StrEnum):
    """How far a run has come."""

    CHECKED = "checked"
    """Everything was checked, and nothing was written."""
    LOADED = "loaded"
    """The rows are on the branch, which is the base itself."""
    REVIEW = "review"
    """The rows are on a branch, for somebody to look at."""
    MERGED = "merged"
    """The rows are in the base."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """How a pipeline is run.

    Attributes:
        variables: values for its variables.
        run_id: which run this is; by default what its file, variables and inputs are decides it.
        check: check everything, and write nothing.
        engine: where the rows are loaded: `auto`, `local` or `spark`.
        session: the Spark session; by default that of the process, which is started if it is needed.
        progress: is told how far the load has come.
        jobs: is told how far the work on Spark has come.
        cancel: stops the work on Spark from another thread.
        told: is told what is done, in a line.
    """

    variables: Mapping[str, object] = field(default_factory=dict, repr=False)
    run_id: str | None = None
    check: bool = False
    engine: Engine | str = Engine.AUTO
    session: Session | None = None
    progress: Callable[[LoadProgress], None] | None = None
    jobs: Callable[[JobProgress], None] | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    told: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class RunReceipt:
    """What a run did.

    Attributes:
        pipeline: the name of the pipeline.
        run_id: which run.
        stage: how far it has come.
        branch: where the rows are, or were.
        base: what the branch was made from, and is merged into.
        engine: where the rows were loaded; None when they had been loaded before.
        why: why there.
        load: what was loaded; None when it had been loaded before.
        commit: the commit that holds the rows; None where there were none, or nothing was written.
        merge: the commit that brought them into the base.
        checks: what was checked.
        resumed: whether an earlier attempt at this run had loaded the rows.
    """

    pipeline: str
    run_id: str
    stage: Stage
    branch: str
    base: str
    engine: Engine | None
    why: str
    load: LoadReceipt | None
    commit: Commit | None
    merge: Commit | None
    checks: tuple[CheckOutcome, ...]
    resumed: bool

    @property
    def total(self) -> int:
        """How many entities this attempt has loaded."""
        return 0 if self.load is None else self.load.total

    def to_json(self) -> dict[str, Any]:
        """The receipt as every surface gives it."""
        return {
            "pipeline": self.pipeline,
            "run": self.run_id,
            "stage": self.stage.value,
            "branch": self.branch,
            "base": self.base,
            "engine": None if self.engine is None else self.engine.value,
            "why": self.why,
            "resumed": self.resumed,
            "load": None if self.load is None else self.load.to_json(),
            "commit": None if self.commit is None else self.commit.id,
            "merge": None if self.merge is None else self.merge.id,
            "checks": [check.to_json() for check in self.checks],
        }


def run(
    graph: Graph, given: str | os.PathLike[str] | Mapping[str, Any] | Document, request: RunRequest | None = None
) -> RunReceipt:
    """Run a declared pipeline.

    Raises:
        InputError: the declaration cannot be used, or the id of the run belongs to another one.
        PipelineCheckError: a check does not hold. The rows are on their branch, and a run that is started again checks
            that branch again.
        BadRowsError: records cannot become rows of their type.
        ConstraintError: rows break a constraint of the schema.
        MergeConflictsError: the base disagrees with the branch.
        SparkUnavailableError: it has SQL, and Spark cannot be started.
    """
    asked = request or RunRequest()
    document = given if isinstance(given, Document) else read_document(given, asked.variables)
    if not asked.check:
        graph.session.require_writable()
    if document.graph is not None and GraphUri.parse(document.graph) != graph.session.store.objects.uri:
        raise InputError(
            f"{document.file}: graph: the pipeline is for {document.graph}, and this graph is {graph.uri}",
            hint="leave 'graph' out of the file, or make it a variable",
        )
    with ExitStack() as opened:
        return _Run(document, graph, asked, pin_sources(document, graph, opened), opened).carry_out()


class _Run:
    """One attempt at a run."""

    def __init__(
        self, document: Document, graph: Graph, request: RunRequest, pinned: Mapping[str, Pinned], opened: ExitStack
    ) -> None:
        self.document = document
        self.graph = graph
        self.request = request
        self.pinned = pinned
        self.opened = opened
        self.id, self.marks = self._identified()
        self.key = f"{LABEL}:{document.name}:{self.id}"
        self.merge_key = f"{self.key}:merge"
        self.branch = document.branch or _own_branch(document.name, self.id)
        self.watch = Watch(request.jobs, request.cancel)
        self.engine: Choice | None = None

    def carry_out(self) -> RunReceipt:
        if self.request.check:
            return self._check()
        merged = self._commit_of(self.document.base, self.merge_key)
        if merged is not None:
            self._clear(merged.merged_parent)
            return self._receipt(Stage.MERGED, None, None, (), merged)
        earlier, load = self._commit_of(self.branch, self.key), None
        if earlier is None:
            try:
                load = self._load(check=False)
            except InputError:
                # Another attempt at the same run was quicker, and SQL has no order: its rows may look different.
                earlier = self._commit_of(self.branch, self.key)
                if earlier is None:
                    raise
        commit = earlier if load is None else load.commit
        if self.document.then is None:
            return self._receipt(Stage.LOADED, load, commit, ())
        head = self.graph.snapshot(branch=self.branch).commit.id
        outcomes = self._checked()
        if self.document.then is Then.REVIEW:
            return self._receipt(Stage.REVIEW, load, commit, outcomes)
        merge = self._merge(head)
        self._clear(head)
        return self._receipt(Stage.MERGED, load, commit, outcomes, merge)

    # Which run this is

    def _identified(self) -> tuple[str, Marks]:
        """The id of the run, and what its inputs are."""
        given = self.request.run_id
        if given is not None:
            check_text(given, "the id of the run", LONGEST_NAME // 4, empty=False)
        marks = {name: pinned.mark for name, pinned in sorted(self.pinned.items())}
        ended = self._ended(marks)
        if ended is not None:
            return ended
        if given is not None:
            return given, marks
        if None in marks.values():
            return ulid_now().lower(), marks  # nobody can say whether it is the same again
        told = [self.document.name, self.document.digest, self._variables_mark, marks]
        return blake2b(json.dumps(told).encode(), digest_size=10).hexdigest(), marks

    def _ended(self, marks: Marks) -> tuple[str, Marks] | None:
        """The run that made the state which a source reads, if it was this one.

        A pipeline that reads the branch which it changes would never find itself again: a source that reads what the
        run has left, and nothing later, is what the run has read.
        """
        for pinned in self.pinned.values():
            said = {} if pinned.view is None else dict(pinned.view.commit.labels)
            if said.get(LABEL) != self.document.name or self.request.run_id not in (None, said[_RUN]):
                continue
            read: Marks = json.loads(said[_SOURCES])
            assert pinned.view is not None
            same = {
                name: read.get(name)
                if other.view is not None and other.view.commit == pinned.view.commit
                else marks[name]
                for name, other in sorted(self.pinned.items())
            }
            made_of = (said[_FILE], said[_VARIABLES], read)
            if None not in read.values() and made_of == (self.document.digest, self._variables_mark, same):
                return said[_RUN], read
        return None

    @property
    def _variables_mark(self) -> str:
        """Values are not recorded: they may be secrets."""
        told = json.dumps(sorted(self.document.variables.items()))
        return blake2b(told.encode(), digest_size=16).hexdigest()

    @cached_property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """What the commits of the run say about it."""
        return (
            (LABEL, self.document.name),
            (_RUN, self.id),
            (_FILE, self.document.digest),
            (_VARIABLES, self._variables_mark),
            (_SOURCES, json.dumps(self.marks)),
        )

    def _commit_of(self, branch: str, key: str) -> Commit | None:
        """What an earlier attempt at this run did.

        Raises:
            InputError: the id belongs to a run of something else.
        """
        try:
            found = find_idempotent(self.graph.session.store.capture(branch), key)
        except BranchNotFoundError:
            return None
        if found is None:
            return None
        said = dict(found.labels)
        for label, what in _MADE_OF.items():
            if said.get(label) != dict(self.labels)[label]:
                raise InputError(
                    f"the run '{self.id}' of '{self.document.name}' was made with {what}: commit {found.id}",
                    hint="an id stands for one run: give this one another",
                )
        return found

    # What it does

    def _request(self, check: bool, engine: Engine | str, chosen: Callable[[Choice], None]) -> LoadRequest:
        return LoadRequest(
            mode=self.document.mode,
            branch=self.branch,
            base=self.document.base,
            idempotency_key=None if check else self.key,
            message=self.document.message or f"pipeline {self.document.name}",
            embed=self.document.embed,
            progress=self.request.progress,
            check=check,
            labels=dict(self.labels),
            mapping=self.document.mapping,
            spark=self._spark,
            cancel=self.request.cancel,
            engine=engine,
            chosen=chosen,
        )

    def _load(self, *, check: bool) -> LoadReceipt:
        source, sql = self._source()

        def chosen(choice: Choice) -> None:
            self.engine = Choice(Engine.SPARK, "the pipeline has SQL") if sql else choice
            self._tell(f"{'checking' if check else 'loading'} {self.engine}")

        engine = Engine.SPARK if sql else self.request.engine
        return load(self.graph.session, source, self._request(check, engine, chosen))

    def _source(self) -> tuple[Any, bool]:
        """The rows to load, and whether they are DataFrames of SQL, which only Spark can read."""
        if not self.document.needs_spark:
            return load_source(self.document, self.pinned), False
        if parse_engine(self.request.engine) is Engine.LOCAL:
            raise InputError(f"{self.document.file}: SQL needs Spark", hint="leave out --engine (engine=)")
        with self._job("planning"):
            frames = {target.rows: self._views().rows(target.rows) for target in self.document.targets}
        if all(frame is None for frame in frames.values()):
            return load_source(self.document, self.pinned), False
        rows = {
            target.key: direct_rows(self.pinned[target.rows]) if frame is None else frame
            for target in self.document.targets
            for frame in (frames[target.rows],)
        }
        return rows, True

    def _check(self) -> RunReceipt:
        """Everything but writing."""
        load = self._load(check=True)
        outcomes = check_input(self.document, self.graph, self._views, self._job)
        self._refuse(outcomes)
        return self._receipt(Stage.CHECKED, load, None, outcomes)

    def _checked(self) -> Sequence[CheckOutcome]:
        if self.document.checks:
            self._tell(f"checking {self.branch}")
        outcomes = check_all(self.document, self.graph, self.branch, self._views, self._job)
        self._refuse(outcomes)
        return outcomes

    def _refuse(self, outcomes: Sequence[CheckOutcome]) -> None:
        failed = tuple(str(outcome) for outcome in outcomes if outcome.passed is False)
        if failed:
            raise PipelineCheckError(self.document.name, None if self.request.check else self.branch, failed)

    def _merge(self, checked: str) -> Commit | None:
        now = self.graph.snapshot(branch=self.branch).commit.id
        if now != checked:
            raise PreconditionFailedError(self.branch, checked, now)
        request = MergeRequest(
            self.branch,
            self.document.base,
            message=self.document.message or f"pipeline {self.document.name}",
            labels=dict(self.labels),
            idempotency_key=self.merge_key,
            expect_source=checked,
            spark=self._spark,
            cancel=self.request.cancel,
            chosen=lambda choice: self._tell(f"merging {self.branch} into {self.document.base} {choice}"),
        )
        return merge(self.graph.session, request).commit

    def _clear(self, merged: str | None) -> None:
        """Remove the branch of the run, if it is the run's own, and nobody has written to it since it was merged."""
        if self.document.branch is None:
            with suppress(BranchNotFoundError, PreconditionFailedError):  # another attempt was quicker, or it is in use
                self.graph.branches.delete(self.branch, expect_head=merged)

    # With what

    @property
    def _spark(self) -> SparkOptions:
        return SparkOptions(self._session, jobs=self.request.jobs)

    @property
    def _session(self) -> Session:
        return self.request.session or process_session()

    def _job(self, what: str) -> AbstractContextManager[object]:
        return self._session.job(what, self.watch)

    def _views(self) -> Views:
        return self._made_views

    @cached_property
    def _made_views(self) -> Views:
        spark = self._session.spark.newSession()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        views = Views(self.document, self.pinned, spark)
        self.opened.callback(views.close)
        views.make()
        return views

    def _tell(self, what: str) -> None:
        if self.request.told is not None:
            self.request.told(what)

    def _receipt(
        self,
        stage: Stage,
        load: LoadReceipt | None,
        commit: Commit | None,
        checks: Sequence[CheckOutcome],
        merge: Commit | None = None,
    ) -> RunReceipt:
        return RunReceipt(
            self.document.name,
            self.id,
            stage,
            self.branch,
            self.document.base,
            None if load is None or self.engine is None else self.engine.engine,
            "the rows were loaded before" if load is None or self.engine is None else self.engine.why,
            load,
            commit,
            merge,
            tuple(checks),
            resumed=load is None,
        )


def _own_branch(pipeline: str, run_id: str) -> str:
    """The branch of a run that names none: no two runs share it, whatever their ids are."""
    try:
        return branch_name(f"{pipeline}-{run_id}")
    except InputError:
        return branch_name(f"{pipeline}-{blake2b(run_id.encode(), digest_size=10).hexdigest()}")
