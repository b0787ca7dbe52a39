"""Prepared queries: compiled once, run many times."""

# See docs/decisions/0227-a-prepared-query-follows-its-branch.md

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.query import Call, SnapshotQuery, on_snapshot
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.query_text import query_text
from omnigraph.engine.session import Session
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.result.result import Result


class PreparedQuery:
    """A query that is compiled once and called many times. Threads may share it.

    Every call reads the newest state, as `Graph.query` does, or the state that the query was prepared for. If the
    schema has changed since the last call, the query is compiled against the new schema first.

    Args:
        session: the engine session.
        request: the text, the name and the state to read. Parameters, budget and cancellation belong to calls.

    Example:
        >>> import omnigraph, tempfile
        >>> with omnigraph.init(tempfile.mkdtemp() + "/g", "node Person { name: String @key  age: I32? }") as graph:
        ...     _ = graph.mutate('query add() { insert Person { name: "Ada", age: 36 } }')
        ...     age = graph.prepare("query age($n: String) { match { $p: Person { name: $n } } return { $p.age } }")
        ...     age({"n": "Ada"}).to_pylist(), len(age({"n": "Bob"}))
        ([{'p.age': 36}], 0)
    """

    def __init__(self, session: Session, request: QueryRequest) -> None:
        self._session = session
        self._text = query_text(request.text)
        self._request = request
        self._last = self._on(session.readable(request.branch, request.at))

    @property
    def name(self) -> str:
        """The name of the query."""
        return self._last.query.name

    def __call__(
        self,
        params: Mapping[str, object] | None = None,
        *,
        budget: Budget | None = None,
        cancel: Cancellation | None = None,
    ) -> Result:
        """Run the query.

        Args:
            params: values of the parameters, by name without `$`.
            budget: limits of the run; by default those of the environment.
            cancel: cancels the run from another thread.

        Raises:
            CompileError: the schema has changed, and the query does not compile with the new one.
            ParameterError: a parameter is missing or of the wrong type.
            BudgetExceededError: the query exceeds its budget.
            CancelledError: the query was cancelled.
        """
        if params.__class__ is not dict or budget is not None or cancel is not None:
            QueryRequest(self._text, params, budget=budget, cancel=cancel)  # checks the types of the arguments
        request = self._request
        view = self._session.readable(request.branch, request.at)
        last = self._last
        if last.view.manifest is not view.manifest:
            last = self._last = self._on(view)
        return last.answer(Call(params, budget, cancel, request.at is not None))

    def __repr__(self) -> str:
        return f"<PreparedQuery {self.name} of '{self._session.uri}'>"

    def _on(self, view: Snapshot) -> SnapshotQuery:
        return on_snapshot(self._session, self._text, self._request.name, view)
