"""Routes of the server itself: health, readiness, metrics and the list of graphs."""

from __future__ import annotations

import asyncio
from operator import itemgetter

from starlette.responses import Response

from omnigraph import __version__
from omnigraph.commit.format_version import CURRENT
from omnigraph.engine.access import Action
from omnigraph.server import answers
from omnigraph.server.call import Call, json_response
from omnigraph.server.metrics import MEDIA_TYPE
from omnigraph.server.operation import Operation
from omnigraph.server.paging import Paging
from omnigraph.server.query_parameters import CURSOR, LIMIT


async def health(call: Call) -> Response:
    return json_response({"status": "ok", "version": __version__, "internal_schema_version": CURRENT})


async def readiness(call: Call) -> Response:
    service = call.service
    status = "draining" if service.draining else "ready"
    body = {
        "status": status,
        "state": service.state.value,
        "graphs": len(service.graphs.all()),
        "quarantined": len(service.graphs.quarantined),
        "warnings": service.warnings,
    }
    return json_response(body, 503 if service.draining else 200)


async def metrics(call: Call) -> Response:
    text = await asyncio.to_thread(call.service.metrics.text)  # it reads the files of all workers
    return Response(text, media_type=MEDIA_TYPE)


async def list_graphs(call: Call) -> Response:
    call.authorize(Action.GRAPH_LIST)
    graphs = [{"graph_id": graph.id, "uri": graph.session.uri} for graph in call.service.graphs.all()]
    return json_response(Paging.of(call).of_names("graphs", graphs, itemgetter("graph_id")))


OPERATIONS = (
    Operation(
        method="GET",
        path="/healthz",
        id="health",
        summary="Whether the process answers.",
        handle=health,
        answer=answers.Health,
        public=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="readiness",
        summary="Whether the server takes requests.",
        handle=readiness,
        answer=answers.Readiness,
        others=((503, "The server is about to stop."),),
        public=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        id="metrics",
        summary="Metrics in the text format of Prometheus.",
        handle=metrics,
        media=("text/plain",),
        public=True,
    ),
    Operation(
        method="GET",
        path="/graphs",
        id="list_graphs",
        summary="List the graphs.",
        handle=list_graphs,
        answer=answers.Graphs,
        query=(LIMIT, CURSOR),
    ),
)
