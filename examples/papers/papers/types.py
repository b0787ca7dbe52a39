"""The Arrow schema of each type: the properties of schema.pg, with what identifies a row in front.

A node type without a key has an `id` column; an edge type has `from` and `to`, which hold node ids. A DateTime is a
timestamp in UTC, as most data has it.
"""

from __future__ import annotations

import pyarrow as pa

from papers.embedding import DIMENSIONS

_TYPES = {
    "String": pa.string(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.timestamp("ms", "UTC"),
    "Blob": pa.large_binary(),
    f"Vector({DIMENSIONS})": pa.list_(pa.float32(), DIMENSIONS),
}


def _schema(text: str) -> pa.Schema:
    """A schema from `name:Type` words. An enum is a String here, as in storage."""
    fields = []
    for word in text.split():
        name, _, written = word.partition(":")
        bare = written.rstrip("?")
        arrow = pa.list_(_TYPES[bare[1:-1]]) if bare.startswith("[") else _TYPES[bare]
        fields.append(pa.field(name, arrow, nullable=written.endswith("?")))
    return pa.schema(fields)


NODES: dict[str, pa.Schema] = {
    name: _schema(text)
    for name, text in {
        "Author": "orcid:String name:String homepage:String? email:String? aliases:[String]? languages:[String] "
        "h_index:U32 active:Bool recorded_at:DateTime",
        "Paper": "doi:String title:String abstract:String? abstract_vec:Vector(64)? kind:String status:String "
        "published:Date? submitted_at:DateTime revised:[Date]? pages:I32? downloads:I64 novelty:F32? "
        "keywords:[String]? open_access:Bool arxivId:String? pdf:Blob? recorded_at:DateTime",
        "Venue": "series:String year:I32 name:String homepage:String? kind:String isbn:String? opens:Date? "
        "deadline:DateTime? milestones:[Date]? acceptance_rate:F64? impact:F32?",
        "Institution": "ror:String name:String homepage:String? kind:String country:String founded:I32? students:U32? "
        "latitude:F64? longitude:F64? accredited:Bool?",
        "Topic": "slug:String name:String homepage:String? summary:String? depth:I32",
        "Dataset": "accession:U64 name:String homepage:String? version:String released:Date license:String? "
        "formats:[String]? entries:I64 size_bytes:U64 split:[F64]? recorded_at:DateTime",
        "Note": "id:String kind:String body:String when:DateTime pages:[U32]? resolved:Bool? source:String? "
        "recorded_at:DateTime",
    }.items()
}

EDGES: dict[str, pa.Schema] = {
    name: _schema(f"from:String to:String {text}")
    for name, text in {
        "Wrote": "position:I32 corresponding:Bool role:String?",
        "Cites": "intent:String? mentions:U32 context:String?",
        "Replaces": "reason:String?",
        "PublishedIn": "accepted:Date? pages:String? volume:I32?",
        "About": "weight:F32 primary:Bool",
        "Uses": "purpose:String share:F64?",
        "AffiliatedWith": "since:Date until:Date? position:String",
        "Advises": "kind:String since:Date until:Date?",
        "Reviewed": "round:U32 verdict:String confidence:F32? when:DateTime summary:String?",
        "SubtopicOf": "",
        "PartOf": "since:Date?",
        "Hosts": "",
        "Annotates": "",
        "Posted": "",
    }.items()
}

TYPES: dict[str, pa.Schema] = NODES | EDGES


def batch(name: str, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch of one type from its columns, in the order and with the types of its schema."""
    schema = TYPES[name]
    if set(columns) != set(schema.names):
        raise ValueError(f"{name}: columns {sorted(columns)} are not {sorted(schema.names)}")
    arrays = [columns[f.name] if columns[f.name].type == f.type else columns[f.name].cast(f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
