"""The schema contract: three files that must agree with each other and with the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.errors import (
    CatalogError,
    CorruptionError,
    DamagedFileError,
    NotFoundError,
    ObjectNotFoundError,
    OmnigraphError,
)
from omnigraph.lang.schema import (
    AcceptedSchema,
    accept,
    check_contract,
    compile_schema,
    dump_ir,
    dump_state,
    ir_hash,
    load_ir,
    schema_state,
)
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.uri import Scheme

SOURCE_PATH = "_schema.pg"
IR_PATH = "_schema.ir.json"
STATE_PATH = "__schema_state.json"
CONTRACT = (SOURCE_PATH, IR_PATH, STATE_PATH)
STAGED = ".staging"
ARCHIVE = "__schemas"
_LOOKS = 8
"""How often the files are looked at while others change the schema."""

Stamps = tuple[tuple[int, datetime, str | None] | None, ...]
"""Size, time and etag of each schema file; None for one that is missing."""


def contract_of(source: str, domain: str) -> tuple[AcceptedSchema, dict[str, bytes]]:
    """A new graph's schema, and the files that record it."""
    accepted = accept(compile_schema(source, SOURCE_PATH), domain)
    return accepted, contract_files(source, accepted)


def contract_files(source: str, accepted: AcceptedSchema) -> dict[str, bytes]:
    """The contents of the three files."""
    return {
        SOURCE_PATH: source.encode(),
        IR_PATH: dump_ir(accepted).encode(),
        STATE_PATH: dump_state(schema_state(accepted)).encode(),
    }


def read_contract(objects: ObjectStore, view: Manifest) -> tuple[str, AcceptedSchema]:
    """The schema that a branch follows.

    Between the commit of a schema change and the moment when its files take their places, the staged files count. A
    branch that was made before the change keeps the schema that it began with.

    Args:
        objects: the graph's objects.
        view: the newest state of the branch.

    Raises:
        NotFoundError: a file is missing. Nothing is ever made again silently.
        CatalogError: the files contradict each other.
        CorruptionError: they are those of another schema.
    """
    found = _look(objects, CONTRACT, view.schema_hash)
    if found is None and view.head.operation_id is not None:
        found = staged_contract(objects, view.schema_hash, view.head.operation_id)
    if found is None and view.branch != MAIN:
        found = archived_contract(objects, view.schema_hash)
    if found is not None:
        return found
    # If they are nowhere, they may have taken their places between the looks.
    source, accepted = _read(objects, CONTRACT)
    if ir_hash(accepted) != view.schema_hash:
        message = "the schema files are not those that the graph was written with"
        missing = [path for path in _archive_paths(view.schema_hash) if not objects.exists(path)]
        if missing:
            message += f", and these are missing: {', '.join(missing)}"
        raise CorruptionError(message, hint="restore the schema files from a backup")
    return source, accepted


def past_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The schema of a past state, which another may have replaced since. None when it was not kept."""
    return _look(objects, CONTRACT, schema_hash) or archived_contract(objects, schema_hash)


def archive_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Keep a schema for the branches that follow it after another has taken its place."""
    source_path, ir_path = _archive_paths(ir_hash(accepted))
    objects.put(source_path, source.encode())
    objects.put(ir_path, dump_ir(accepted).encode())


def archived_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """A schema that was kept, by its hash. None when it was not.

    Raises:
        DamagedFileError: one of its two files is missing, or it is not the schema with that hash.
    """
    source_path, ir_path = _archive_paths(schema_hash)
    source, ir = _find(objects, source_path), _find(objects, ir_path)
    if source is None and ir is None:
        return None
    if source is None or ir is None:
        raise DamagedFileError(str(objects.uri), source_path if source is None else ir_path, "it is missing")
    try:
        accepted = load_ir(ir)
    except CatalogError as error:
        raise DamagedFileError(str(objects.uri), ir_path, error.message) from error
    if _archive_paths(ir_hash(accepted)) != (source_path, ir_path):
        raise DamagedFileError(str(objects.uri), ir_path, "it is not the schema that it is named after")
    try:
        check_contract(source, ir, dump_state(schema_state(accepted)))
        return source.decode(), accepted
    except (CatalogError, UnicodeDecodeError):
        raise DamagedFileError(str(objects.uri), source_path, "it is not the source of its schema") from None


def _archive_paths(schema_hash: str) -> tuple[str, str]:
    """The source and the compiled form of an archived schema."""
    name = f"{ARCHIVE}/{schema_hash.rpartition(':')[2]}"
    return f"{name}.pg", f"{name}.ir.json"


def _find(objects: ObjectStore, path: str) -> bytes | None:
    try:
        return objects.get(path).data
    except ObjectNotFoundError:
        return None


def _look(objects: ObjectStore, paths: Sequence[str], schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The contract in three files, if they are whole and those of a schema."""
    try:
        source, accepted = _read(objects, paths)
    except (NotFoundError, CatalogError):
        return None
    return (source, accepted) if ir_hash(accepted) == schema_hash else None


def _read(objects: ObjectStore, paths: Sequence[str]) -> tuple[str, AcceptedSchema]:
    contents = []
    for path in paths:
        try:
            contents.append(objects.get(path).data)
        except ObjectNotFoundError:
            raise NotFoundError(
                f"the graph has no {path}",
                hint="restore the three schema files from a backup, or rebuild the graph from an export",
            ) from None
    source, ir, state = contents
    accepted = check_contract(source, ir, state)  # first: what was not accepted need not even be a text
    return source.decode(), accepted


class ContractWatch:
    """Notices that the schema files were changed under an open handle, at the cost of three `head` requests.

    The files are those of `main`. A branch that follows an older schema finds that in the archive, and whoever writes
    to it notices changed files all the same.

    Args:
        objects: the graph's objects.
        main: gives the newest state of `main`.
    """

    def __init__(self, objects: ObjectStore, main: Callable[[], Manifest]) -> None:
        self._objects = objects
        self._main = main
        self._seen: tuple[str, Stamps] | None = None
        self._heads = ThreadPoolExecutor(len(CONTRACT), thread_name_prefix="schema") if _is_remote(objects) else None

    def check(self, view: Manifest) -> None:
        """Check the files again if they are not those that were checked last.

        Args:
            view: the newest state of a branch.

        Raises:
            NotFoundError: a file is missing.
            CatalogError: the files contradict each other, or what the graph was written with.
        """
        stamps = self._stamps()
        if view.branch == MAIN:
            if self._seen != (view.schema_hash, stamps):
                self.read(view)
        elif self._seen is None or self._seen[1] != stamps:
            self._check_main()

    def read(self, view: Manifest) -> tuple[str, AcceptedSchema]:
        """The schema that a branch follows, as `read_contract` gives it; those of `main` count as checked."""
        stamps = self._stamps()
        found = read_contract(self._objects, view)
        if view.branch == MAIN:
            self._seen = (view.schema_hash, stamps)
        return found

    def _check_main(self) -> None:
        for _ in range(_LOOKS - 1):
            view = self._main()
            try:
                self.read(view)
            except OmnigraphError:
                if self._main().version == view.version:
                    raise  # otherwise another commit has just changed the schema
            else:
                return
        self.read(self._main())

    def _stamps(self) -> Stamps:
        heads = map if self._heads is None else self._heads.map
        return tuple(heads(self._stamp, CONTRACT))

    def _stamp(self, path: str) -> tuple[int, datetime, str | None] | None:
        try:
            info = self._objects.head(path)
        except ObjectNotFoundError:
            return None
        return info.size, info.modified, info.etag


def _is_remote(objects: ObjectStore) -> bool:
    return objects.uri.scheme is Scheme.S3


# The successors during a change of schema. Their names hold the operation that wrote them, so that a writer or a
# recovery that comes late touches only its own.


def staged_paths(operation_id: str) -> list[str]:
    """Where the successors of the three files lie, in the same order."""
    return [f"{path}.{operation_id}{STAGED}" for path in CONTRACT]


def stage_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema, operation_id: str) -> None:
    """Write the successors of the three files beside them."""
    archive_contract(objects, source, accepted)
    for path, data in zip(staged_paths(operation_id), contract_files(source, accepted).values(), strict=True):
        objects.put(path, data)


def staged_contract(objects: ObjectStore, schema_hash: str, operation_id: str) -> tuple[str, AcceptedSchema] | None:
    """The staged successors of an operation, if they are complete and are those of a schema."""
    return _look(objects, staged_paths(operation_id), schema_hash)


def promote_contract(objects: ObjectStore, schema_hash: str, operation_id: str) -> None:
    """Put the staged successors in their places. May be interrupted and run again.

    Raises:
        StorageError: among others when somebody else has put files in their places meanwhile.
    """
    # Looked at before the successors, so that what a later change of schema put there is never replaced.
    etags = [_etag(objects, path) for path in CONTRACT]
    if staged_contract(objects, schema_hash, operation_id) is not None:
        for path, staged, etag in zip(CONTRACT, staged_paths(operation_id), etags, strict=True):
            data = objects.get(staged).data
            if etag is None:
                objects.create(path, data)
            else:
                objects.replace(path, data, etag)
    discard_staged(objects, operation_id)


def _etag(objects: ObjectStore, path: str) -> str | None:
    try:
        return objects.get(path).etag
    except ObjectNotFoundError:
        return None


def discard_staged(objects: ObjectStore, operation_id: str) -> None:
    """Remove the staged successors of an operation, which nothing will need."""
    for path in staged_paths(operation_id):
        objects.delete(path)
