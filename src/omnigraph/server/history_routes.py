"""Routes of commits, diffs and the change feed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from omnigraph.changes.commit_page import DEFAULT_CHANGES, MAX_CHANGES
from omnigraph.commit.lineage import find_commit, unknown_commit
from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.engine.access import Action
from omnigraph.engine.changes import baseline, commit_changes, poll
from omnigraph.engine.diff import diff, snapshot_named
from omnigraph.engine.requests import BaselineRequest, CommitChangesRequest, DiffRequest, PollRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, NotFoundError
from omnigraph.graph.collections import Commits
from omnigraph.server import answers
from omnigraph.server.bodies import BaselineBody
from omnigraph.server.call import Call
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.query_parameters import BRANCH, CURSOR, LIMIT, QueryParameter
from omnigraph.server.result_formats import JSON, NDJSON

OPS = ("insert", "update", "delete")


async def list_commits(call: Call) -> Response:
    limit, cursor = call.number("limit"), call.query("cursor")

    def work(session: Session) -> dict[str, Any]:
        branch = session.branch_or_default(call.query("branch"))
        call.authorize(Action.READ, branch)
        page = Commits(session, branch).list(branch=branch, actor=call.query("actor"), limit=limit, cursor=cursor)
        marks = {commit_id: {"is_kept": False} for commit_id in page.removed}
        members: dict[str, Any] = {
            "commits": [commit_json(commit) | marks.get(commit.id, {}) for commit in page.commits]
        }
        return members if page.cursor is None else members | {"cursor": page.cursor}

    return await call.answer_read(work)


async def show_commit(call: Call) -> Response:
    call.authorize(Action.READ)
    commit_id = call.path("commit_id")
    return await call.answer_read(lambda session: commit_json(_commit(session, commit_id)))


def _commit(session: Session, commit_id: str) -> Commit:
    """A commit. Its error for an unknown commit is also that for a denied one.

    Raises:
        NotFoundError: there is no such commit.
    """
    try:
        return find_commit(session.store, commit_id)
    except NotFoundError:
        raise unknown_commit(session.store, commit_id) from None


async def list_changes(call: Call) -> Response:
    commit_id, limit = call.path("commit_id"), call.number("limit")

    def work(session: Session) -> dict[str, Any]:
        try:
            commit = _commit(session, commit_id)
        except NotFoundError:
            call.is_allowed(Action.READ)  # recorded and counted, as for a commit that the actor may not see
            raise
        if not call.is_allowed(Action.READ, commit.branch):
            raise unknown_commit(session.store, commit_id)
        request = CommitChangesRequest(
            commit=commit.id,
            page_token=call.query("page_token"),
            limit=DEFAULT_CHANGES if limit is None else limit,
            kinds=call.queries("kind"),
            types=call.queries("type"),
            ops=call.queries("op"),
        )
        return commit_changes(session, request).to_json()

    return await call.answer_read(work)


async def poll_changes(call: Call) -> Response:
    limit = call.number("limit")

    def work(session: Session) -> dict[str, Any]:
        branch = session.branch_or_default(call.query("branch"))
        call.authorize(Action.READ, branch)
        request = PollRequest(
            branch=branch,
            start=call.query("start"),
            cursor=call.query("cursor"),
            page_token=call.query("page_token"),
            limit=DEFAULT_CHANGES if limit is None else limit,
            kinds=call.queries("kind"),
            types=call.queries("type"),
            ops=call.queries("op"),
        )
        return poll(session, request).to_json()

    return await call.answer_read(work)


async def stream_baseline(call: Call) -> Response:
    body = await call.body(BaselineBody, optional=True)

    def produce(session: Session) -> Iterator[bytes]:
        branch = session.branch_or_default(body.branch)
        call.authorize(Action.EXPORT, branch)
        request = BaselineRequest(branch=branch, kinds=body.kind, types=body.type, ops=body.op)
        return baseline(session, request).lines()

    return await call.stream(produce, NDJSON, export=True)


async def show_diff(call: Call) -> Response:
    limit = call.number("limit")
    if limit is not None and limit < 0:
        raise InputError(f"limit must be a number of at least 0, not {limit}")

    def produce(session: Session) -> Iterator[bytes]:
        before, after = (snapshot_named(session, str(call.query(name))) for name in ("from", "to"))
        if session.access is None:  # with a policy, they are checked already
            for view in (before, after):
                call.authorize(Action.READ, view.commit.branch, names_branch=False)
        request = DiffRequest(before, after, call.queries("type"), call.queries("id"), call.queries("op"))
        return diff(session, request).json_chunks(limit)

    return await call.stream(produce, JSON)


_FILTERS = (
    QueryParameter("limit", "The maximum number of changes of the page.", kind="integer", least=1, most=MAX_CHANGES),
    QueryParameter("page_token", "The token of the page before."),
    QueryParameter("kind", "The kinds of entities.", repeated=True, values=("node", "edge")),
    QueryParameter("type", "The types.", repeated=True),
    QueryParameter("op", "The kinds of changes.", repeated=True, values=OPS),
)

OPERATIONS = (
    Operation(
        method="GET",
        path=f"{GRAPH}/commits",
        id="list_commits",
        summary="List the commits of a branch, newest first.",
        handle=list_commits,
        answer=answers.Commits,
        query=(BRANCH, QueryParameter("actor", "Only commits of this actor."), LIMIT, CURSOR),
        links=(
            ("get_commit", "commit_id", "commits/0/graph_commit_id"),
            ("list_commit_changes", "commit_id", "commits/0/graph_commit_id"),
        ),
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/commits/{{commit_id}}",
        id="get_commit",
        summary="Show a commit of any branch.",
        handle=show_commit,
        answer=answers.CommitAnswer,
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/commits/{{commit_id}}/changes",
        id="list_commit_changes",
        summary="List the changes of a commit since its first parent.",
        handle=list_changes,
        answer=answers.CommitChanges,
        query=_FILTERS,
        statuses=(409, 410),
        changes=True,
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/diff",
        id="diff",
        summary="Show the changes between two states: branches, commits, tags, or times of `main`.",
        handle=show_diff,
        answer=answers.Diff,
        query=(
            QueryParameter("from", "The first state.", required=True),
            QueryParameter("to", "The second state.", required=True),
            QueryParameter("type", "The types.", repeated=True),
            QueryParameter("id", "The ids of entities.", repeated=True),
            QueryParameter("op", "The kinds of changes.", repeated=True, values=OPS),
            QueryParameter("limit", "The maximum number of changes; all by default.", kind="integer", least=0),
        ),
    ),
    Operation(
        method="GET",
        path=f"{GRAPH}/changes",
        id="poll_changes",
        summary="Poll the change feed of a branch.",
        handle=poll_changes,
        answer=answers.FeedPage,
        query=(
            BRANCH,
            QueryParameter("start", "`now`, `beginning` or `after:COMMIT`."),
            QueryParameter("cursor", "The cursor of an earlier page."),
            *_FILTERS,
        ),
        statuses=(409, 410),
        changes=True,
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/changes/baseline",
        id="stream_baseline",
        summary="Stream the entities of a branch, and the cursor from which its change feed continues.",
        handle=stream_baseline,
        body=BaselineBody,
        body_required=False,
        media=(NDJSON,),
        changes=True,
    ),
)
