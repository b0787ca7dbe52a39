"""A run of a declared pipeline: load the rows, check them, and merge the branch or keep it for review.

An interrupted run continues when it is started again. The state of a run is stored in the graph only: the idempotency
keys of its commits are derived from the id of the run.
"""

# See docs/decisions/0118-a-run-is-in-the-graph.md

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any

from ulid_transform import ulid_now

from omnigraph.commit.commit_metadata import LONGEST_NAME, check_text
from omnigraph.commit.lineage import find_any_idempotent
from omnigraph.commit.manifest import Commit
from omnigraph.commit.ref_names import branch_name
from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import Choice, Engine, JobProgress, SparkOptions, parse_engine
from omnigraph.engine.load import load
from omnigraph.engine.merge import merge
from omnigraph.engine.requests import LoadRequest, MergeRequest
from omnigraph.errors import BranchNotFoundError, InputError, PipelineCheckError, PreconditionFailedError
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.checking import CheckOutcome, check_all, check_input
from omnigraph.pipeline.declared.document import Document, Then, read_document
from omnigraph.pipeline.declared.inputs import PinnedSource, direct_rows, load_source, pin_sources
from omnigraph.pipeline.declared.views import Views
from omnigraph.pipeline.spark.jobs import JobMonitor
from omnigraph.pipeline.spark.session import Session
from omnigraph.pipeline.spark.session import session as process_session
from omnigraph.read.budget import Cancellation
from omnigraph.storage.uri import GraphUri
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadReceipt

Digests = dict[str, str | None]
"""A digest of the state of each source, by source name."""

LABEL = "pipeline"
"""The prefix of the commit labels of a run."""

_RUN, _FILE, _SOURCES, _VARIABLES = (f"{LABEL}.{name}" for name in ("run", "file", "sources", "variables"))

_SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
"""With these settings, SQL gives the same result on every machine: a value that does not fit its type is an error, and
times are in UTC."""

_LABEL_MEANINGS = {_FILE: "another declaration", _VARIABLES: "other variables", _SOURCES: "other inputs"}


class Stage(StrEnum):
    """The stage that a run has reached."""

    CHECKED = "checked"
    """The rows were checked without loading them, and nothing was written."""
    LOADED = "loaded"
    """The rows are loaded directly into the base branch."""
    REVIEW = "review"
    """The rows are on a separate branch, which is kept for review."""
    MERGED = "merged"
    """The rows are merged into the base branch."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run.

    Attributes:
        variables: the values of the variables.
        run_id: the id of the run; by default a digest of the file, the variables and the inputs.
        check: whether to only check the input, and write nothing.
        engine: where the rows are loaded: `auto`, `local` or `spark`.
        session: the Spark session; by default that of the process, which is started if it is needed.
        progress: is called with the progress of the load.
        jobs: is called with the progress of the work on Spark.
        cancel: stops the work on Spark from another thread.
        status: is called with a line of text for each step.
    """

    variables: Mapping[str, object] = field(default_factory=dict, repr=False)
    run_id: str | None = None
    check: bool = False
    engine: Engine | str = Engine.AUTO
    session: Session | None = None
    progress: Callable[[LoadProgress], None] | None = None
    jobs: Callable[[JobProgress], None] | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    status: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class RunReceipt:
    """The result of a run.

    Attributes:
        pipeline: the name of the pipeline.
        run_id: the id of the run.
        stage: the stage that the run has reached.
        branch: the branch that the rows were loaded into. It may be deleted after the merge.
        base: the branch that the run started from, and merges into.
        engine: where the rows were loaded; None if an earlier attempt loaded them.
        why: why this engine was chosen.
        load: the receipt of the load; None if an earlier attempt loaded the rows.
        commit: the commit of the rows; None if there were no rows, or nothing was written.
        merge: the commit of the merge into the base.
        checks: the results of the checks.
        resumed: whether an earlier attempt of this run loaded the rows.
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
        """The number of entities that this attempt loaded."""
        return 0 if self.load is None else self.load.total

    def to_json(self) -> dict[str, Any]:
        """The receipt as JSON."""
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
        InputError: the declaration is not valid, or a run with other inputs has the same id.
        PipelineCheckError: a check failed. The rows are on their branch, and a new attempt checks that branch again.
        BadRowsError: records cannot become rows of their type.
        ConstraintError: rows break a constraint of the schema.
        MergeConflictsError: the base and the branch conflict.
        SparkUnavailableError: the pipeline has SQL, and Spark cannot be started.
    """
    request = request or RunRequest()
    document = given if isinstance(given, Document) else read_document(given, request.variables)
    if not request.check:
        graph.session.require_writable()
    if document.graph is not None and GraphUri.parse(document.graph) != graph.session.store.objects.uri:
        raise InputError(
            f"{document.file}: graph: the pipeline is for {document.graph}, but this graph is {graph.uri}",
            hint="remove 'graph' from the file, or use a variable",
        )
    with ExitStack() as opened:
        return _Run(document, graph, request, pin_sources(document, graph, opened), opened).execute()


class _Run:
    """One attempt of a run."""

    def __init__(
        self,
        document: Document,
        graph: Graph,
        request: RunRequest,
        pinned: Mapping[str, PinnedSource],
        opened: ExitStack,
    ) -> None:
        self.document = document
        self.graph = graph
        self.request = request
        self.pinned = pinned
        self.opened = opened
        self.id, self.digests = self._identity()
        self.key = f"{LABEL}:{document.name}:{self.id}"
        self.merge_key = f"{self.key}:merge"
        self.branch = document.branch or _default_branch(document.name, self.id)
        self.monitor = JobMonitor(request.jobs, request.cancel)
        self.engine: Choice | None = None

    def execute(self) -> RunReceipt:
        if self.request.check:
            return self._check()
        merged = self._earlier_commit(self.document.base, self.merge_key)
        if merged is not None:
            self._delete_branch(merged.merged_parent)
            return self._receipt(Stage.MERGED, None, None, (), merged)
        earlier, load = self._earlier_commit(self.branch, self.key), None
        if earlier is None:
            try:
                load = self._load(check=False)
            except InputError:
                # A concurrent attempt of the same run may have committed first. SQL may return rows in another order.
                # Then this load fails, because the idempotency key belongs to a load with other rows.
                earlier = self._earlier_commit(self.branch, self.key)
                if earlier is None:
                    raise
        commit = earlier if load is None else load.commit
        if self.document.then is None:
            return self._receipt(Stage.LOADED, load, commit, ())
        head = self.graph.snapshot(branch=self.branch).commit.id
        outcomes = self._run_checks()
        if self.document.then is Then.REVIEW:
            return self._receipt(Stage.REVIEW, load, commit, outcomes)
        merge = self._merge(head)
        self._delete_branch(head)
        return self._receipt(Stage.MERGED, load, commit, outcomes, merge)

    # Identity of the run

    def _identity(self) -> tuple[str, Digests]:
        """The id of the run, and the digests of its sources."""
        given = self.request.run_id
        if given is not None:
            check_text(given, "the id of the run", LONGEST_NAME // 4, empty=False)
        digests = {name: pinned.digest for name, pinned in sorted(self.pinned.items())}
        ended = self._earlier_run(digests)
        if ended is not None:
            return ended
        if given is not None:
            return given, digests
        if None in digests.values():
            # The state of a source is unknown. It may have changed, so every run gets a new id.
            return ulid_now().lower(), digests
        identity = [self.document.name, self.document.digest, self._variables_digest, digests]
        return blake2b(json.dumps(identity).encode(), digest_size=10).hexdigest(), digests

    def _earlier_run(self, digests: Digests) -> tuple[str, Digests] | None:
        """The id and the digests of a completed run with the same input, if a source reads the commit of that run.

        A pipeline may read the branch that it changes. After a run, that branch has a new head, so the digests of the
        sources differ. If a source reads exactly the commit of an earlier run, the digests in its labels are used.
        """
        for pinned in self.pinned.values():
            labels = {} if pinned.view is None else dict(pinned.view.commit.labels)
            if labels.get(LABEL) != self.document.name or self.request.run_id not in (None, labels[_RUN]):
                continue
            read: Digests = json.loads(labels[_SOURCES])
            assert pinned.view is not None
            same = {
                name: read.get(name)
                if other.view is not None and other.view.commit == pinned.view.commit
                else digests[name]
                for name, other in sorted(self.pinned.items())
            }
            recorded = (labels[_FILE], labels[_VARIABLES], read)
            if None not in read.values() and recorded == (self.document.digest, self._variables_digest, same):
                return labels[_RUN], read
        return None

    @property
    def _variables_digest(self) -> str:
        """A digest of the variables. The values are not recorded, because they may be secrets."""
        values = json.dumps(sorted(self.document.variables.items()))
        return blake2b(values.encode(), digest_size=16).hexdigest()

    @cached_property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """The labels of the commits of the run."""
        return (
            (LABEL, self.document.name),
            (_RUN, self.id),
            (_FILE, self.document.digest),
            (_VARIABLES, self._variables_digest),
            (_SOURCES, json.dumps(self.digests)),
        )

    def _earlier_commit(self, branch: str, key: str) -> Commit | None:
        """The commit of an earlier attempt of this run.

        Raises:
            InputError: a run with other inputs, variables or another declaration has the same id.
        """
        try:
            found = find_any_idempotent(self.graph.session.store.capture(branch), key)
        except BranchNotFoundError:
            return None
        if found is None:
            return None
        labels = dict(found.labels)
        for label, what in _LABEL_MEANINGS.items():
            if labels.get(label) != dict(self.labels)[label]:
                raise InputError(
                    f"pipeline '{self.document.name}': commit {found.id} has the run id '{self.id}' with {what}",
                    hint="use another run id, or omit it",
                )
        return found

    # The steps of a run

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
            self._report(f"{'checking' if check else 'loading'} {self.engine}")

        engine = Engine.SPARK if sql else self.request.engine
        return load(self.graph.session, source, self._request(check, engine, chosen))

    def _source(self) -> tuple[Any, bool]:
        """The rows to load, and whether they are DataFrames, which only Spark can read."""
        if not self.document.needs_spark:
            return load_source(self.document, self.pinned), False
        if parse_engine(self.request.engine) is Engine.LOCAL:
            raise InputError(
                f"{self.document.file}: the pipeline has SQL or a Spark source, which the engine 'local' cannot run",
                hint="use --engine spark (engine='spark'), or omit the option",
            )
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
        """Check the rows without writing them, and run the checks that need no loaded rows."""
        load = self._load(check=True)
        outcomes = check_input(self.document, self.graph, self._views, self._job)
        self._raise_failed(outcomes)
        return self._receipt(Stage.CHECKED, load, None, outcomes)

    def _run_checks(self) -> Sequence[CheckOutcome]:
        if self.document.checks:
            self._report(f"checking {self.branch}")
        outcomes = check_all(self.document, self.graph, self.branch, self._views, self._job)
        self._raise_failed(outcomes)
        return outcomes

    def _raise_failed(self, outcomes: Sequence[CheckOutcome]) -> None:
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
            chosen=lambda choice: self._report(f"merging {self.branch} into {self.document.base} {choice}"),
        )
        return merge(self.graph.session, request).commit

    def _delete_branch(self, merged: str | None) -> None:
        """Delete the branch of the run, if the run created it and nothing was written to it since the merge."""
        if self.document.branch is None:
            # This fails if a concurrent attempt has deleted the branch, or if it has new commits. Both are no problem.
            with suppress(BranchNotFoundError, PreconditionFailedError):
                self.graph.branches.delete(self.branch, expect_head=merged)

    # Work on Spark

    @property
    def _spark(self) -> SparkOptions:
        return SparkOptions(self._session, jobs=self.request.jobs)

    @property
    def _session(self) -> Session:
        return self.request.session or process_session()

    def _job(self, what: str) -> AbstractContextManager[object]:
        return self._session.job(what, self.monitor)

    def _views(self) -> Views:
        return self._created_views

    @cached_property
    def _created_views(self) -> Views:
        spark = self._session.spark.newSession()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        views = Views(self.document, self.pinned, spark)
        self.opened.callback(views.close)
        views.make()
        return views

    def _report(self, what: str) -> None:
        if self.request.status is not None:
            self.request.status(what)

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
            "an earlier attempt loaded the rows" if load is None or self.engine is None else self.engine.why,
            load,
            commit,
            merge,
            tuple(checks),
            resumed=load is None,
        )


def _default_branch(pipeline: str, run_id: str) -> str:
    """The default branch of a run. Different runs have different branches."""
    try:
        return branch_name(f"{pipeline}-{run_id}")
    except InputError:
        return branch_name(f"{pipeline}-{blake2b(run_id.encode(), digest_size=10).hexdigest()}")
