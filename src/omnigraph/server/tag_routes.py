"""Routes of tags: names of commits, which cleanup keeps."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from starlette.responses import Response

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name, tag_name
from omnigraph.engine.access import Action
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.graph.collections import Tags
from omnigraph.server import answers
from omnigraph.server.bodies import TagBody
from omnigraph.server.call import Call
from omnigraph.server.mutate_routes import without_null_actor
from omnigraph.server.operation import GRAPH, Operation
from omnigraph.server.paging import Paging
from omnigraph.server.query_parameters import CURSOR, LIMIT


async def list_tags(call: Call) -> Response:
    call.authorize(Action.READ)
    paging = Paging.of(call)

    def work(session: Session) -> dict[str, Any]:
        found = sorted((tag.to_json() for tag in Tags(session).list()), key=itemgetter("name"))
        return paging.of_names("tags", found, itemgetter("name"))

    return await call.answer_read(work)


async def create_tag(call: Call) -> Response:
    body = await call.body(TagBody)
    if body.branch is not None and body.commit is not None:
        raise InputError("give branch or commit, not both: a commit already belongs to a branch")
    name, branch = tag_name(body.name), branch_name(body.branch or MAIN)

    def work(session: Session) -> dict[str, Any]:
        if session.access is None:
            source = branch if body.commit is None else session.snapshot(commit=body.commit).commit.branch
            call.authorize(Action.BRANCH_CREATE, source, name, names_branch=body.commit is None)
        # With a policy, the engine checks it. Its denial does not show whether the commit exists.
        made = Tags(session).create(name, commit=body.commit, branch=branch)
        return without_null_actor({"uri": session.uri, **made.to_json(), "actor_id": session.actor})

    return await call.answer_write(work)


async def delete_tag(call: Call) -> Response:
    name = tag_name(call.path("tag"))
    call.authorize(Action.BRANCH_DELETE, None, name)

    def work(session: Session) -> dict[str, Any]:
        Tags(session).delete(name)
        return without_null_actor({"uri": session.uri, "name": name, "actor_id": session.actor})

    return await call.answer_write(work)


OPERATIONS = (
    Operation(
        method="GET",
        path=f"{GRAPH}/tags",
        id="list_tags",
        summary="List the tags by name.",
        handle=list_tags,
        answer=answers.Tags,
        query=(LIMIT, CURSOR),
    ),
    Operation(
        method="POST",
        path=f"{GRAPH}/tags",
        id="create_tag",
        summary="Tag a commit, or the head of a branch.",
        handle=create_tag,
        body=TagBody,
        answer=answers.TagCreated,
        links=(("delete_tag", "tag", "name"),),
        statuses=(409,),
    ),
    Operation(
        method="DELETE",
        path=f"{GRAPH}/tags/{{tag}}",
        id="delete_tag",
        summary="Delete a tag. The commit stays, but cleanup may remove it.",
        handle=delete_tag,
        answer=answers.TagDeleted,
    ),
)
