"""The schema files: source text, compiled schema and state. They must agree with each other and with the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from omnigraph.worker_pool import WorkerPool

SOURCE_PATH = "_schema.pg"
IR_PATH = "_schema.ir.json"
STATE_PATH = "__schema_state.json"
CONTRACT = (SOURCE_PATH, IR_PATH, STATE_PATH)
STAGED = ".staging"
ARCHIVE = "__schemas"
_LOOKS = 8
"""Maximum number of attempts to read the files while other processes change the schema."""

Stamps = tuple[tuple[int, datetime, str | None] | None, ...]
"""Size, time and etag of each schema file; None for a missing one."""


def contract_of(source: str, domain: str) -> tuple[AcceptedSchema, dict[str, bytes]]:
    """The schema of a new graph, and the files that record it."""
    accepted = accept(compile_schema(source, SOURCE_PATH), domain)
    return accepted, contract_files(source, accepted)


def contract_files(source: str, accepted: AcceptedSchema) -> dict[str, bytes]:
    """The contents of the three schema files: source text, compiled schema and state."""
    return {
        SOURCE_PATH: source.encode(),
        IR_PATH: dump_ir(accepted).encode(),
        STATE_PATH: dump_state(schema_state(accepted)).encode(),
    }


def read_contract(objects: ObjectStore, view: Manifest) -> tuple[str, AcceptedSchema]:
    """The schema of a branch.

    After the commit of a schema change, its files are promoted: copied from their staged paths to the final paths.
    Until then, the staged files are valid. A branch that was created before the change keeps its schema.

    Args:
        objects: the graph's objects.
        view: the newest state of the branch.

    Raises:
        NotFoundError: a file is missing. Files are never recreated silently.
        CatalogError: the files contradict each other.
        CorruptionError: the files belong to another schema than the one in the manifest.
    """
    found = _matching_contract(objects, CONTRACT, view.schema_hash)
    if found is None and view.head.operation_id is not None:
        found = staged_contract(objects, view.schema_hash, view.head.operation_id)
    if found is None and view.branch != MAIN:
        found = archived_contract(objects, view.schema_hash)
    if found is not None:
        return found
    # Between these reads, another process may have copied the staged files to the final paths. So read them again.
    source, accepted = _read(objects, CONTRACT)
    if ir_hash(accepted) != view.schema_hash:
        message = "the schema files do not match the schema in the manifest"
        missing = [path for path in _archive_paths(view.schema_hash) if not objects.exists(path)]
        if missing:
            message += f", and these are missing: {', '.join(missing)}"
        raise CorruptionError(message, hint="restore the schema files from a backup")
    return source, accepted


def past_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """The schema of a past state, which may have been replaced since; None if it was not archived."""
    return _matching_contract(objects, CONTRACT, schema_hash) or archived_contract(objects, schema_hash)


def archive_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema) -> None:
    """Archive a schema, for branches that use it after it is replaced."""
    source_path, ir_path = _archive_paths(ir_hash(accepted))
    objects.put(source_path, source.encode())
    objects.put(ir_path, dump_ir(accepted).encode())


def archived_contract(objects: ObjectStore, schema_hash: str) -> tuple[str, AcceptedSchema] | None:
    """An archived schema, by its hash; None if it was not archived.

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
        raise DamagedFileError(str(objects.uri), ir_path, "its schema does not match the hash in its name")
    try:
        check_contract(source, ir, dump_state(schema_state(accepted)))
        return source.decode(), accepted
    except (CatalogError, UnicodeDecodeError):
        raise DamagedFileError(str(objects.uri), source_path, "it does not match the compiled schema") from None


def archived_schemas(objects: ObjectStore) -> Iterator[AcceptedSchema]:
    """All schemas that the graph has ever had, in no order.

    Raises:
        DamagedFileError: a file of one of them is missing or damaged.
    """
    for name in sorted({info.path.rpartition("/")[2].partition(".")[0] for info in objects.list(ARCHIVE)}):
        found = archived_contract(objects, name)
        if found is not None:
            yield found[1]


def _archive_paths(schema_hash: str) -> tuple[str, str]:
    """The source and the compiled form of an archived schema."""
    name = f"{ARCHIVE}/{schema_hash.rpartition(':')[2]}"
    return f"{name}.pg", f"{name}.ir.json"


def _find(objects: ObjectStore, path: str) -> bytes | None:
    try:
        return objects.get(path).data
    except ObjectNotFoundError:
        return None


def _matching_contract(
    objects: ObjectStore, paths: Sequence[str], schema_hash: str
) -> tuple[str, AcceptedSchema] | None:
    """The schema in three files, if they are complete and the schema has the given hash; else None."""
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
    accepted = check_contract(source, ir, state)  # check before decoding: an edited file may not be UTF-8
    return source.decode(), accepted


class ContractWatch:
    """Detects changes of the schema files while a graph is open. A check costs three `head` requests.

    The files are those of `main`. A branch with an older schema reads it from the archive, but a writer to that branch
    still detects changed files.

    Args:
        objects: the graph's objects.
        main: returns the newest state of `main`.
    """

    def __init__(self, objects: ObjectStore, main: Callable[[], Manifest]) -> None:
        self._objects = objects
        self._main = main
        self._seen: tuple[str, Stamps] | None = None
        self._heads = WorkerPool(len(CONTRACT), thread_name_prefix="schema") if _is_remote(objects) else None

    def check(self, view: Manifest) -> None:
        """Check the files again, if they changed since the last check.

        Args:
            view: the newest state of a branch.

        Raises:
            NotFoundError: a file is missing.
            CatalogError: the files contradict each other or the graph.
        """
        stamps = self._stamps()
        if view.branch == MAIN:
            if self._seen != (view.schema_hash, stamps):
                self.read(view)
        elif self._seen is None or self._seen[1] != stamps:
            self._check_main()

    def read(self, view: Manifest) -> tuple[str, AcceptedSchema]:
        """The schema of a branch, by `read_contract`. For `main`, the next `check` looks only for later changes."""
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
                    raise  # otherwise a commit has just changed the schema: check again
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


# Staged files of a schema change. Their names contain the operation id, so that a late writer or recovery changes only
# its own files.


def staged_paths(operation_id: str) -> list[str]:
    """Paths of the three staged files: source text, compiled schema and state."""
    return [f"{path}.{operation_id}{STAGED}" for path in CONTRACT]


def stage_contract(objects: ObjectStore, source: str, accepted: AcceptedSchema, operation_id: str) -> None:
    """Write the three staged files."""
    archive_contract(objects, source, accepted)
    for path, data in zip(staged_paths(operation_id), contract_files(source, accepted).values(), strict=True):
        objects.put(path, data)


def staged_contract(objects: ObjectStore, schema_hash: str, operation_id: str) -> tuple[str, AcceptedSchema] | None:
    """The staged schema of an operation, if its files are complete and valid."""
    return _matching_contract(objects, staged_paths(operation_id), schema_hash)


def promote_contract(objects: ObjectStore, schema_hash: str, operation_id: str) -> None:
    """Copy the staged files to their final paths, and remove them. May be interrupted and run again.

    Raises:
        StorageError: the files cannot be written, or another process has written them meanwhile.
    """
    # Read the etags before the staged files, so that files of a later schema change are never replaced.
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
    """Remove the staged files of an operation that nothing needs."""
    for path in staged_paths(operation_id):
        objects.delete(path)
