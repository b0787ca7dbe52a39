"""The JSON bodies of requests."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_READ = "query people($least: I32?) { match { $p: Person } return { $p.name as name } order { name } limit 10 }"
_WRITE = "query add($name: String) { insert Person { name: $name } }"
_ROWS = '{"type":"Person","data":{"name":"ann"}}\n'


class Body(BaseModel):
    """A JSON object. Unknown members are ignored, so that newer clients can talk to older servers."""

    model_config = ConfigDict(strict=True, extra="ignore")


def _example(**members: Any) -> ConfigDict:
    """The configuration of a model with an example in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [members]})


class BudgetBody(Body):
    """Limits of a read. A limit above that of the server is lowered to it."""

    seconds: float | None = Field(None, ge=0)
    memory: int | None = Field(None, ge=0)
    rows: int | None = Field(None, ge=0)
    returned: int | None = Field(None, ge=0)


class QueryBody(Body):
    """A query that reads, and the state that it reads: the head of a branch, or a commit."""

    model_config = _example(query=_READ, params={"least": 30}, branch="main")

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    budget: BudgetBody | None = None


class ReadBody(Body):
    """A query that reads, with the member names of older clients."""

    model_config = _example(query_source=_READ, query_name="people", params={"least": 30})

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None


class CommitBody(Body):
    """The metadata of the commit of a write."""

    message: str | None = None
    labels: dict[str, str] | None = None


class MutateBody(CommitBody):
    """A query that writes. `query_source` and `query_name` are the member names of older clients."""

    model_config = _example(query=_WRITE, params={"name": "ann"}, branch="draft", message="add ann")

    query: str | None = None
    query_source: str | None = None
    name: str | None = None
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None


class InvokeBody(CommitBody):
    """A call of a stored query."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    budget: BudgetBody | None = None


class ConditionalInvokeBody(CommitBody):
    """A conditional call of a stored mutation, which runs on a branch: `snapshot` is refused."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None


class ExportBody(BaseModel):
    """The types to export. An empty list stands for all of them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    branch: str | None = None
    snapshot: str | None = None
    type_names: list[str] | None = None


Mode = Literal["append", "merge", "overwrite"]


class LoadBody(CommitBody):
    """Rows as NDJSON text."""

    model_config = _example(**{"data": _ROWS, "branch": "draft", "from": "main", "mode": "merge"})

    data: str
    branch: str | None = None
    from_: str | None = Field(None, alias="from")
    mode: Mode = "merge"


class BranchBody(Body):
    """A branch to create, at the head of another branch, or at a commit or tag."""

    model_config = _example(**{"name": "draft", "from": "main"})

    name: str
    from_: str | None = Field(None, alias="from")
    commit: str | None = None


class TagBody(Body):
    """A tag to create, for a commit or for the head of a branch."""

    model_config = _example(name="v1", branch="main")

    name: str
    commit: str | None = None
    branch: str | None = None


class ResolutionBody(Body):
    """The side that wins one conflict."""

    entity_kind: Literal["node", "edge"]
    type_name: str
    entity_id: str
    side: Literal["ours", "theirs"]


class MergeBody(CommitBody):
    """A branch to merge into another."""

    model_config = _example(source="draft", target="main", strategy="theirs", delete_branch=True)

    source: str
    target: str | None = None
    delete_branch: bool = False
    preview: bool = False
    strategy: Literal["ours", "theirs"] | None = None
    resolutions: list[ResolutionBody] | None = None
    level: Literal["row", "property"] | None = None


class SchemaBody(CommitBody):
    """A schema to apply to `main`."""

    schema_source: str
    allow_data_loss: bool = False


class BaselineBody(Body):
    """The filters of a baseline."""

    branch: str | None = None
    kind: list[str] | None = None
    type: list[str] | None = None
    op: list[str] | None = None
