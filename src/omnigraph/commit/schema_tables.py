"""The tables of a schema: their keys and identities, and their creation."""

from __future__ import annotations

from ulid_transform import ulid_now

from omnigraph.commit.manifest import Manifest, TableId, TablePin
from omnigraph.commit.store import Store
from omnigraph.errors import CorruptionError
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey, type_key

_IDENTITY = 33
"""Length of an identity as text: two numbers of 16 digits."""


def table_keys(accepted: AcceptedSchema) -> dict[str, TableId]:
    """The tables of a schema, by type key."""
    keys = {}
    for kind, names in ((TypeKind.NODE, accepted.catalog.nodes), (TypeKind.EDGE, accepted.catalog.edges)):
        for name in names:
            identity = accepted.identity(kind, name)
            assert identity.incarnation is not None
            keys[type_key(kind, name)] = TableId(identity.type_id, identity.incarnation)
    return keys


def check_tables(accepted: AcceptedSchema, view: Manifest) -> None:
    """Check that the manifest has exactly the tables of the schema.

    Raises:
        CorruptionError: the tables differ.
    """
    wanted = table_keys(accepted)
    found = {key: pin.id for key, pin in view.tables.items()}
    if wanted != found:
        differ = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        raise CorruptionError(
            f"the schema and the manifest have different tables: {', '.join(differ)}",
            hint="restore the schema files from a backup",
        )


def create_table(store: Store, accepted: AcceptedSchema, key: str, identity: TableId) -> TablePin:
    """Create an empty table. No reader sees it until a manifest points at it.

    The directory name has the identity and a unique id of this attempt. So a process that continues after a pause
    cannot change a table that another process has published.
    """
    kind, name = TypeKey.parse(key)
    path = f"{kind}s/{identity}-{ulid_now().lower()}"
    return TablePin(key, identity, store.tables.create(path, arrow_schema(accepted, kind, name)), 0)


def identity_in(path: str) -> str:
    """The identity in the name of a table directory. In format 1, the whole name is the identity.

    >>> identity_in("nodes/0000000000000001-0000000000000002-01jd0000000000000000000000")
    'nodes/0000000000000001-0000000000000002'
    """
    kind, _, name = path.partition("/")
    return f"{kind}/{name[:_IDENTITY]}"
