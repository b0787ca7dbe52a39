"""Routes of branches."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from omnigraph.commit.branches import list_branches
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.access import Action
from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.merge import merge
from omnigraph.engine.requests import MergeRequest
from omnigraph.engine.session import Session
from omnigraph.errors import Conflict, InputError
from omnigraph.merge.choices import Strategy
from omnigraph.server import answers
from omnigraph.server.bodies import BranchBody, MergeBody
from omnigraph.server.call import Call
from omnigraph.server.mutate_routes import without_null_actor
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.paging import Paging
from omnigraph.server.query_parameters import CURSOR, LIMIT


async def show_branches(call: Call) -> Response:
    call.authorize(Action.READ)
    paging = Paging.of(call)

    def work(session: Session) -> dict[str, Any]:
        return paging.of_names("branches", sorted(branch.name for branch in list_branches(session.store)), str)

    return await call.answer_read(work)


async def create(call: Call) -> Response:
    body = await call.body(BranchBody)
    if body.from_ is not None and body.commit is not None:
        raise InputError("give from or commit, not both: a branch starts at the head of a branch or at a commit")
    name, source = branch_name(body.name), branch_name(body.from_ or MAIN)

    def work(session: Session) -> dict[str, Any]:
        if session.access is None:
            start = source if body.commit is None else session.snapshot(commit=body.commit).commit.branch
            call.authorize(Action.BRANCH_CREATE, start, name, names_branch=body.commit is None)
        # With a policy, the engine checks it. Its denial does not show whether the commit exists.
        if body.commit is None:
            made = create_branch(session, name, source=source)
        else:
            made = create_branch(session, name, commit=body.commit)
        shown = source if body.commit is None else body.commit
        return without_null_actor({"uri": session.uri, "from": shown, "name": made.name, "actor_id": session.actor})

    return await call.answer_write(work)


async def delete(call: Call) -> Response:
    name = branch_name(call.path("branch"))
    call.authorize(Action.BRANCH_DELETE, None, name)

    def work(session: Session) -> dict[str, Any]:
        delete_branch(session, name)
        return without_null_actor({"uri": session.uri, "name": name, "actor_id": session.actor})

    return await call.answer_write(work)


async def merge_branches(call: Call) -> Response:
    body = await call.body(MergeBody)
    source, target = branch_name(body.source), branch_name(body.target or MAIN)
    call.authorize(Action.BRANCH_MERGE, source, target)
    denied = body.delete_branch and not call.is_allowed(Action.BRANCH_DELETE, None, source)
    resolutions: dict[Conflict | tuple[str, str], Strategy | str] = {
        (f"{one.entity_kind}:{one.type_name}", one.entity_id): one.side for one in body.resolutions or ()
    }
    request = MergeRequest(
        source,
        target,
        strategy=body.strategy,
        resolutions=resolutions or None,
        preview=body.preview,
        delete_branch=body.delete_branch and not denied and not body.preview,
        level=body.level,
        idempotency_key=call.idempotency_key(),
        message=body.message,
        labels=body.labels,
        engine="local",
        cancel=call.cancel,
    )

    def work(session: Session) -> dict[str, Any]:
        members = without_null_actor(merge(session, request).to_json())
        if denied and not body.preview:
            members |= {"branch_deleted": False, "branch_delete_error": f"you may not delete the branch '{source}'"}
        return members

    return await call.answer_write(work)


OPERATIONS = (
    Operation(
        method="GET",
        path=f"{GRAPH}/branches",
        id="list_branches",
        summary="List the branches by name.",
        handle=show_branches,
        answer=answers.Branches,
        query=(LIMIT, CURSOR),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/branches",
        id="create_branch",
        summary="Create a branch.",
        handle=create,
        body=BranchBody,
        answer=answers.BranchCreated,
        links=(("delete_branch", "branch", "name"),),
        statuses=(409, 503),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/branches/merge",
        id="merge_branches",
        summary="Merge a branch into another, as one commit.",
        handle=merge_branches,
        body=MergeBody,
        answer=answers.Merge,
        statuses=(409, 503),
        idempotent=True,
    ),
    Operation(
        method="DELETE",
        path=f"{GRAPH}/branches/{{branch}}",
        id="delete_branch",
        summary="Delete a branch. Slashes in its name are percent-encoded.",
        handle=delete,
        answer=answers.BranchDeleted,
        statuses=(409, 503),
    ),
)
