"""The offline form of `embed`: computes the vectors of a file of records, without a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click

from omnigraph.cli.files import SOURCE_FILE, read_bytes
from omnigraph.cli.output import print_json
from omnigraph.cli.progress import progress_display
from omnigraph.cli.streams import stdin
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.embed import Tally
    from omnigraph.embed.record_file import RecordCounts, RecordWork
    from omnigraph.embed.record_spec import RecordSpec

F = TypeVar("F", bound=Callable[..., object])

_STDIN = "-"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of `embed` that name files, and select the records in them."""

    seed: Path | None
    input: str | None
    output: str | None
    spec: Path | None
    clean: bool
    reembed_all: bool
    select: tuple[str, ...]

    @property
    def names_files(self) -> bool:
        """Whether the command is about files and not about a graph."""
        return any(given is not None for given in (self.seed, self.input, self.output, self.spec))


def file_options(command: F) -> F:
    """Add the options of the offline form. The command gets them as `files`."""

    @wraps(command)
    def run(*args: object, **values: Any) -> object:
        names = FileOptions.__dataclass_fields__
        files = FileOptions(**{name: values.pop(name) for name in names})
        return command(*args, files=files, **values)

    decorated: Callable[..., object] = run
    for option in reversed(
        [
            click.option(
                "--seed", type=SOURCE_FILE, metavar="FILE", help="Without a graph: manifest with files and spec."
            ),
            click.option("--input", metavar="FILE", help="Without a graph: records, as JSON lines; - reads stdin."),
            click.option("--output", metavar="FILE", help="Without a graph: the records with vectors; - is stdout."),
            click.option(
                "--spec", type=SOURCE_FILE, metavar="FILE", help="Without a graph: dimension, types, and fields."
            ),
            click.option("--clean", is_flag=True, help="With files: remove the vectors."),
            click.option("--reembed-all", is_flag=True, help="With files: compute all vectors again."),
            click.option(
                "--select",
                metavar="[TYPE:]FIELD=VALUE",
                multiple=True,
                help="With files: compute the vectors of these records again. Repeatable.",
            ),
        ]
    ):
        decorated = option(decorated)
    return cast(F, decorated)


def refuse_options(names: tuple[str, ...], reason: str) -> None:
    """Refuse options that do not apply.

    Args:
        names: the parameters of the command.
        reason: the end of the message.

    Raises:
        UsageError: the user gave one of them.
    """
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            same = [parameter for parameter in context.command.params if parameter.name == name]
            options = [parameter.opts[-1] for parameter in same if isinstance(parameter, click.Option)]
            raise click.UsageError(f"{'/'.join(options) or name.upper()} {reason}")


def embed_files(files: FileOptions, types: tuple[str, ...], *, quiet: bool, as_json: bool) -> None:
    """Compute the vectors of a file, and print the counts.

    Raises:
        UsageError: the options do not fit together.
        InputError: a file cannot be read or written, or has an error.
        EmbeddingError: vectors cannot be computed.
    """
    from omnigraph.embed import default_embedder
    from omnigraph.embed.record_file import Mode, RecordWork
    from omnigraph.embed.record_spec import Selector

    source, target, spec = _places(files)
    if target == _STDIN and as_json:
        raise click.UsageError("--json needs a file as --output, because standard output receives the records")
    if files.clean and files.reembed_all:
        raise click.UsageError("give --clean or --reembed-all, not both")
    if files.clean:
        mode = Mode.CLEAN
    elif files.reembed_all:
        mode = Mode.REEMBED_ALL
    else:
        mode = Mode.REEMBED_SELECTED if files.select else Mode.FILL_MISSING
    work = RecordWork(spec, mode, types, tuple(map(Selector.parse, files.select)))
    embedder = None if mode is Mode.CLEAN else default_embedder()
    with progress_display(shown=not quiet and not as_json) as shown:
        counts = _run(source, target, work, embedder, shown.vectors)
    model = None if embedder is None else embedder.name
    if as_json:
        print_json(
            {
                "input": source,
                "output": target,
                "records": counts.records,
                "selected_records": counts.selected,
                "embedded_records": counts.embedded,
                "cleaned_records": counts.cleaned,
                "mode": mode.value,
                "dimension": spec.dimension,
                "model": model,
            }
        )
    else:
        done = f"{counts.cleaned:,} cleaned" if model is None else f"{counts.embedded:,} embedded with {model}"
        click.echo(f"{target}: {counts.records:,} records, {counts.selected:,} selected, {done}", err=target == _STDIN)
    if counts.misfits:
        click.echo(
            f"warning: {counts.misfits:,} vectors do not have the dimension {spec.dimension}; --reembed-all computes "
            "them again",
            err=True,
        )


def _places(files: FileOptions) -> tuple[str, str, RecordSpec]:
    """The input, the output and the spec."""
    from omnigraph.embed.record_spec import read_manifest, read_spec

    if files.seed is not None:
        if files.input is not None or files.spec is not None:
            raise click.UsageError("--seed names the input and the spec: give --seed, or --input, --output and --spec")
        manifest = read_manifest(read_bytes(files.seed), str(files.seed), files.seed.parent)
        return str(manifest.input), files.output or str(manifest.output), manifest.spec
    if files.input is None or files.output is None or files.spec is None:
        raise click.UsageError("give --seed, or --input, --output and --spec")
    return files.input, files.output, read_spec(read_bytes(files.spec), str(files.spec))


def _run(
    source: str,
    target: str,
    work: RecordWork,
    embedder: Any,
    show: Callable[[Any], None] | None,
) -> RecordCounts:
    from omnigraph.embed.record_file import embed_records
    from omnigraph.upkeep.vectors import Counts, EmbedProgress

    def progress(counts: RecordCounts, tally: Tally) -> None:
        if show is not None:
            done = Counts(changed=counts.embedded, computed=tally.computed, cached=tally.found)
            show(EmbedProgress("records", counts.records, None, done))

    name = "stdin" if source == _STDIN else source
    with _input(source) as lines, _output(target) as file:
        return embed_records(lines, name, file.write, work, embedder, progress)


@contextmanager
def _input(source: str) -> Iterator[IO[bytes]]:
    if source == _STDIN:
        yield stdin()
        return
    try:
        with open(source, "rb") as file:
            yield file
    except OSError as error:
        if error.filename != source:
            raise
        raise InputError(f"cannot read {source}: {error.strerror}") from error


@contextmanager
def _output(target: str) -> Iterator[IO[bytes]]:
    """The output. A file appears when it is complete; missing directories are created."""
    from omnigraph.storage.files.local_output import output_file

    if target == _STDIN:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from error
    with output_file(target) as file:
        yield file
