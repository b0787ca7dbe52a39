"""Every environment variable that OmniGraph reads, with its default and meaning.

All code reads its variables through this module. `docs/reference/settings.md` is generated from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum

from omnigraph.amounts import parse_age, parse_amount
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut

_YES, _NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class Group(StrEnum):
    """The sections of the reference page, in its order."""

    STORAGE = "Storage"
    RESOURCES = "Memory and disk"
    EMBEDDINGS = "Embeddings"
    SPARK = "Spark"
    COMMAND_LINE = "Command line"
    SERVER = "Server"
    DIAGNOSIS = "Tests and diagnosis"
    OTHERS = "Variables of other programs"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable.

    Attributes:
        name: the variable.
        group: the section of the reference page.
        meaning: one or two sentences in Markdown.
        value: the form of its value, such as `amount` or `directory`.
        default: the value if the variable is not set; empty if there is none.
        unset: for the reference page: the value that is used if the variable is not set and there is no default.
    """

    name: str
    group: Group
    meaning: str
    value: str
    default: str = ""
    unset: str = ""

    def named(self, name: str) -> Setting:
        """The variable for one name, if the name of the setting has the placeholder `<NAME>`."""
        return replace(self, name=self.name.replace("<NAME>", name))

    def get(self, environ: Mapping[str, str] | None = None) -> str | None:
        """The value of the variable; None if it is not set.

        Args:
            environ: the variables; by default those of the process.
        """
        return (os.environ if environ is None else environ).get(self.name)

    def text(self, environ: Mapping[str, str] | None = None) -> str:
        """The value of the variable, or the default."""
        value = self.get(environ)
        return self.default if value is None else value

    def number(self, environ: Mapping[str, str] | None = None) -> int:
        """The value as a whole number, or the default.

        >>> UPKEEP_FRAGMENTS.number({"OMNIGRAPH_UPKEEP_FRAGMENTS": "7"}), UPKEEP_FRAGMENTS.number({})
        (7, 100)

        Raises:
            InputError: the value is not a whole number, or it is negative.
        """
        text = self.text(environ)
        if not text.isascii() or not text.isdecimal():
            raise InputError(f"{self.name}: '{text}' is not a number", hint="write a whole number, such as 100")
        return int(text)

    def flag(self, environ: Mapping[str, str] | None = None) -> bool:
        """The value as yes or no, or the default.

        >>> [UNAUTHENTICATED.flag({"OMNIGRAPH_UNAUTHENTICATED": text}) for text in ("1", "0", "true", "False", "")]
        [True, False, True, False, False]

        Raises:
            InputError: the value is neither.
        """
        text = self.text(environ).strip().lower()
        if text not in _YES and text not in _NO:
            raise InputError(f"{self.name}: '{cut(text)}' is neither yes nor no", hint="write 1 or 0")
        return text in _YES

    def amount(self, environ: Mapping[str, str] | None = None) -> int:
        """The value in bytes, or the default.

        >>> LOAD_MEMORY.amount({"OMNIGRAPH_LOAD_MEMORY": "64 MiB"}), LOAD_MEMORY.amount({})
        (67108864, 1073741824)

        Raises:
            InputError: the value is not an amount.
        """
        return parse_amount(self.name, self.text(environ))

    def age(self, environ: Mapping[str, str] | None = None) -> timedelta:
        """The value as a duration, or the default. A number without a unit is a number of seconds.

        >>> str(UPKEEP_OLDER_THAN.age({"OMNIGRAPH_UPKEEP_OLDER_THAN": "12h"})), str(UPKEEP_OLDER_THAN.age({}))
        ('12:00:00', '7 days, 0:00:00')

        Raises:
            InputError: the value is not a duration.
        """
        text = self.text(environ)
        seconds = re.fullmatch(r"[0-9]{1,9}", text.strip())
        found = timedelta(seconds=int(text)) if seconds else parse_age(text)
        if found is None:
            raise InputError(
                f"{self.name}: '{cut(text)}' is not an age", hint="write seconds, or 90s, 30m, 12h, 7d, 2w"
            )
        return found


# ---- storage

FSYNC = Setting(
    "OMNIGRAPH_FSYNC",
    Group.STORAGE,
    "`0` skips `fsync` on local disks. Writes are faster, and a power failure can lose acknowledged commits: use it for"
    " tests and throw-away graphs only.",
    "`0` or `1`",
    "1",
)
CLOCK_TOLERANCE = Setting(
    "OMNIGRAPH_CLOCK_TOLERANCE",
    Group.STORAGE,
    "A writer whose clock differs from the clock of the object store by more than this is refused with"
    " [`clock`](../errors.md#clock).",
    "seconds",
    "300",
)
CHECKED_BYTES = Setting(
    "OMNIGRAPH_CHECKED_BYTES",
    Group.STORAGE,
    "Files up to this size are compared with their checksums when they are first opened; `verify` compares larger ones."
    " `0` checks lengths only.",
    "bytes",
    str(8 << 20),
)
MAINTENANCE_CONCURRENCY = Setting(
    "OMNIGRAPH_MAINTENANCE_CONCURRENCY",
    Group.STORAGE,
    "Number of threads with which `optimize` rewrites files and builds indexes in one process.",
    "number",
    "8",
)

UPKEEP_FRAGMENTS = Setting(
    "OMNIGRAPH_UPKEEP_FRAGMENTS",
    Group.STORAGE,
    "`status` advises `optimize`, and `upkeep` runs it, for a table with more small files than this.",
    "number",
    "100",
)
UPKEEP_UNINDEXED = Setting(
    "OMNIGRAPH_UPKEEP_UNINDEXED",
    Group.STORAGE,
    "`status` advises `optimize`, and `upkeep` runs it, for a table with more rows than this that an index lacks.",
    "number",
    "10000",
)
UPKEEP_DELETED = Setting(
    "OMNIGRAPH_UPKEEP_DELETED",
    Group.STORAGE,
    "`status` advises `optimize`, and `upkeep` runs it, for a table with more than this percentage of deleted rows.",
    "percent",
    "20",
)
UPKEEP_VERSIONS = Setting(
    "OMNIGRAPH_UPKEEP_VERSIONS",
    Group.STORAGE,
    "`status` advises `cleanup`, and `upkeep` runs it, if more than this number of commits can be removed.",
    "number",
    "100",
)
UPKEEP_KEEP = Setting(
    "OMNIGRAPH_UPKEEP_KEEP",
    Group.STORAGE,
    "Number of newest commits of each branch that `upkeep` keeps readable.",
    "number",
    "100",
)
UPKEEP_OLDER_THAN = Setting(
    "OMNIGRAPH_UPKEEP_OLDER_THAN",
    Group.STORAGE,
    "`upkeep` keeps younger commits than this readable: `12h`, `7d`, `2w`, or a number of seconds.",
    "age",
    "7d",
)

DENIALS = Setting(
    "OMNIGRAPH_DENIALS",
    Group.STORAGE,
    "File to which every request that a [policy](../guide/policies.md) denies is appended.",
    "file",
    unset="`omnigraph/denials.jsonl` in `XDG_STATE_HOME`",
)

# ---- memory and disk

QUERY_MEMORY = Setting(
    "OMNIGRAPH_QUERY_MEMORY",
    Group.RESOURCES,
    "Memory for the intermediate rows of one query. The default is at most half of the machine's memory.",
    "amount",
    "4 GiB",
)
THREADS = Setting(
    "OMNIGRAPH_THREADS",
    Group.RESOURCES,
    "Threads that one query may use. The result does not depend on it.",
    "number",
    unset="the number of cores that the process may use",
)
LOAD_MEMORY = Setting(
    "OMNIGRAPH_LOAD_MEMORY",
    Group.RESOURCES,
    "Memory for the rows of one load, mutation or merge. A load and a merge spill to temporary files beyond it; a"
    " mutation fails.",
    "amount",
    "1 GiB",
)
CACHE_MEMORY = Setting(
    "OMNIGRAPH_CACHE_MEMORY",
    Group.RESOURCES,
    "Memory for columns, topologies and inverted indexes that a process caches between queries. On top of it come"
    " an eighth of it, for manifests of tables, and as much again, for pages of the indexes of tables.",
    "amount",
    "1 GiB",
)
CACHE_DIR = Setting(
    "OMNIGRAPH_CACHE_DIR",
    Group.RESOURCES,
    "Directory of the disk cache: topologies, inverted indexes, embedding vectors and Java class archives. An empty"
    " value turns the disk cache off.",
    "directory",
    unset="the user's cache directory",
)
CACHE_DISK = Setting(
    "OMNIGRAPH_CACHE_DISK",
    Group.RESOURCES,
    "Disk space for cached topologies and inverted indexes.",
    "amount",
    "8 GiB",
)

# ---- embeddings

EMBED_PROVIDER = Setting(
    "OMNIGRAPH_EMBED_PROVIDER",
    Group.EMBEDDINGS,
    "Embedding provider: `offline`, `openai-compatible`, `openai`, `gemini` or `mock`. See"
    " [embeddings](../guide/embeddings.md).",
    "name",
    "offline",
)
EMBED_BASE_URL = Setting(
    "OMNIGRAPH_EMBED_BASE_URL",
    Group.EMBEDDINGS,
    "Address of the provider, for example of your own server, which then needs no key. Without"
    " `OMNIGRAPH_EMBED_PROVIDER` it selects `openai-compatible`.",
    "URL",
    unset="the provider's own address",
)
EMBED_MODEL = Setting(
    "OMNIGRAPH_EMBED_MODEL",
    Group.EMBEDDINGS,
    "Name of the embedding model. Without `OMNIGRAPH_EMBED_PROVIDER` it selects `openai-compatible`.",
    "name",
    unset="the provider's own model",
)
EMBED_DEADLINE_MS = Setting(
    "OMNIGRAPH_EMBED_DEADLINE_MS",
    Group.EMBEDDINGS,
    "Time limit of one request to a provider with all its retries; `0` for no limit.",
    "milliseconds",
    "60000",
)
EMBED_TIMEOUT_MS = Setting(
    "OMNIGRAPH_EMBED_TIMEOUT_MS", Group.EMBEDDINGS, "Time limit of one attempt.", "milliseconds", "30000"
)
EMBED_RETRY_ATTEMPTS = Setting(
    "OMNIGRAPH_EMBED_RETRY_ATTEMPTS",
    Group.EMBEDDINGS,
    "Number of attempts for a request that gets status 429 or 5xx, or no answer.",
    "number",
    "4",
)
EMBED_RETRY_BACKOFF_MS = Setting(
    "OMNIGRAPH_EMBED_RETRY_BACKOFF_MS",
    Group.EMBEDDINGS,
    "Pause before the first retry. It doubles with each retry, and is longer if the provider asks for more.",
    "milliseconds",
    "200",
)
EMBED_CACHE = Setting(
    "OMNIGRAPH_EMBED_CACHE",
    Group.EMBEDDINGS,
    "Disk space for cached embedding vectors; `0` turns this cache off.",
    "amount",
    "2 GiB",
)
EMBEDDINGS_MOCK = Setting(
    "OMNIGRAPH_EMBEDDINGS_MOCK",
    Group.EMBEDDINGS,
    "`1` selects the `mock` provider whatever else is set, and logs a warning. Its vectors have no meaning.",
    "`0` or `1`",
    "0",
)

# ---- Spark

SPARK_THRESHOLD = Setting(
    "OMNIGRAPH_SPARK_THRESHOLD",
    Group.SPARK,
    "Work of at least this size runs on Spark if the engine is `auto` and Spark is installed.",
    "amount",
    "4 GiB",
)
MERGE_THRESHOLD = Setting(
    "OMNIGRAPH_MERGE_THRESHOLD",
    Group.SPARK,
    "If the rows of a type have at least this size, Spark tasks merge them; otherwise the driver merges them.",
    "amount",
    "1 GiB",
)
SPARK_MASTER = Setting(
    "OMNIGRAPH_SPARK_MASTER",
    Group.SPARK,
    "Spark master, such as `spark://host:7077`, `yarn` or `k8s://…`.",
    "address",
    "local[*,4]",
)
SPARK_MEMORY = Setting(
    "OMNIGRAPH_SPARK_MEMORY", Group.SPARK, "Memory of the driver's Java, in Spark's notation: `2g`.", "Spark size"
)

# ---- command line

BLOB_SOURCES = Setting(
    "OMNIGRAPH_BLOB_SOURCES",
    Group.COMMAND_LINE,
    "Directories and addresses, separated by spaces, from which commands may read external blobs.",
    "list",
    unset="none are allowed",
)
HOME = Setting(
    "OMNIGRAPH_HOME",
    Group.COMMAND_LINE,
    "Directory of `config.yaml`, of the stored tokens and of the shell's history. See"
    " [the command line and servers](../guide/remote.md).",
    "directory",
    unset="~/.omnigraph",
)
PROFILE = Setting(
    "OMNIGRAPH_PROFILE",
    Group.COMMAND_LINE,
    "Profile of `config.yaml` for commands that name no graph.",
    "name",
)
STORE = Setting(
    "OMNIGRAPH_STORE",
    Group.COMMAND_LINE,
    "Storage of the graph for commands that name no graph: a path, `file://` or `s3://`.",
    "address",
)
BEARER_TOKEN = Setting(
    "OMNIGRAPH_BEARER_TOKEN",
    Group.COMMAND_LINE,
    "Bearer token for servers that have no token of their own.",
    "secret",
)
TOKEN_OF_SERVER = Setting(
    "OMNIGRAPH_TOKEN_<NAME>",
    Group.COMMAND_LINE,
    "Bearer token of one server of `config.yaml`. `<NAME>` is its name in capitals, with `_` for `-`.",
    "secret",
)

# ---- server

BIND = Setting("OMNIGRAPH_BIND", Group.SERVER, "Address of `omnigraph serve`.", "host:port", "127.0.0.1:8080")
UNAUTHENTICATED = Setting(
    "OMNIGRAPH_UNAUTHENTICATED",
    Group.SERVER,
    "`1` lets a server without tokens start: everyone who reaches it may read and write.",
    "`0` or `1`",
    "0",
)
REQUIRE_ALL_GRAPHS = Setting(
    "OMNIGRAPH_REQUIRE_ALL_GRAPHS",
    Group.SERVER,
    "`1` makes the server stop at start if one of its graphs cannot be served.",
    "`0` or `1`",
    "0",
)
SERVER_BEARER_TOKEN = Setting(
    "OMNIGRAPH_SERVER_BEARER_TOKEN", Group.SERVER, "One bearer token, of the actor `default`.", "secret"
)
SERVER_BEARER_TOKENS_FILE = Setting(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
    Group.SERVER,
    "JSON file `{actor: token}`. It is read again when it changes, and on SIGHUP.",
    "file",
)
SERVER_BEARER_TOKENS_JSON = Setting(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON",
    Group.SERVER,
    "JSON object `{actor: token}`. Ignored if there is a file.",
    "secret",
)
SERVER_BEARER_TOKENS_AWS_SECRET = Setting(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET",
    Group.SERVER,
    "Id of a secret in AWS Secrets Manager that contains `{actor: token}`. Other tokens are then ignored. Needs the"
    " extra `aws`.",
    "name",
)
SERVER_JWKS_FILE = Setting(
    "OMNIGRAPH_SERVER_JWKS_FILE",
    Group.SERVER,
    "JSON Web Key Set with the public keys of the tokens (RS256, ES256, EdDSA) that the server accepts.",
    "file",
)
SERVER_JWT_ISSUER = Setting(
    "OMNIGRAPH_SERVER_JWT_ISSUER", Group.SERVER, "Required issuer (`iss`) of JSON Web Tokens.", "text"
)
SERVER_JWT_AUDIENCE = Setting(
    "OMNIGRAPH_SERVER_JWT_AUDIENCE", Group.SERVER, "Required audience (`aud`) of JSON Web Tokens.", "text"
)
PER_ACTOR_INFLIGHT_MAX = Setting(
    "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX",
    Group.SERVER,
    "Writes of one actor at the same time, per worker.",
    "number",
    "16",
)
PER_ACTOR_READS_MAX = Setting(
    "OMNIGRAPH_PER_ACTOR_READS_MAX", Group.SERVER, "Reads of one actor at the same time, per worker.", "number", "128"
)
PER_ACTOR_BYTES_MAX = Setting(
    "OMNIGRAPH_PER_ACTOR_BYTES_MAX",
    Group.SERVER,
    "Size of the writes of one actor at the same time, per worker.",
    "amount",
    "4 GiB",
)
SERVER_THREADS = Setting(
    "OMNIGRAPH_SERVER_THREADS", Group.SERVER, "Threads of one worker that run queries.", "number", "2"
)
SERVER_REQUEST_SECONDS = Setting(
    "OMNIGRAPH_SERVER_REQUEST_SECONDS", Group.SERVER, "Time limit of one read, with its wait for a thread.", "age", "60"
)
SERVER_REQUEST_ROWS = Setting(
    "OMNIGRAPH_SERVER_REQUEST_ROWS",
    Group.SERVER,
    "Maximum number of rows in the result of one query.",
    "number",
    "1000000",
)
SERVER_BODY_MAX = Setting(
    "OMNIGRAPH_SERVER_BODY_MAX", Group.SERVER, "Maximum size of the body of a request.", "amount", "1 MiB"
)
SERVER_LOAD_BODY_MAX = Setting(
    "OMNIGRAPH_SERVER_LOAD_BODY_MAX", Group.SERVER, "Maximum size of the body of a load.", "amount", "32 MiB"
)
SERVER_HEADER_SECONDS = Setting(
    "OMNIGRAPH_SERVER_HEADER_SECONDS",
    Group.SERVER,
    "Time within which a client has to send the headers of a request. Afterwards, each part of a body has to arrive"
    " within this time, and the body as a whole at 1 KiB per second or more.",
    "age",
    "20",
)
SERVER_SEND_SECONDS = Setting(
    "OMNIGRAPH_SERVER_SEND_SECONDS",
    Group.SERVER,
    "Interval in which a client has to read bytes of a large answer, 1 KiB per second or more.",
    "age",
    "120",
)
SERVER_DRAIN_SECONDS = Setting(
    "OMNIGRAPH_SERVER_DRAIN_SECONDS",
    Group.SERVER,
    "Time between SIGTERM and the end of accepting connections. Meanwhile `/readyz` answers 503.",
    "age",
    "5",
)
SERVER_STOP_SECONDS = Setting(
    "OMNIGRAPH_SERVER_STOP_SECONDS",
    Group.SERVER,
    "Time that requests in flight have to finish when the server stops.",
    "age",
    "30",
)
LOG_LEVEL = Setting(
    "OMNIGRAPH_LOG_LEVEL",
    Group.SERVER,
    "Least severe log records: `debug`, `info`, `warning` or `error`.",
    "name",
    "info",
)

# ---- tests and diagnosis

DEBUG = Setting("OMNIGRAPH_DEBUG", Group.DIAGNOSIS, "`1` prints the traceback of a failing command.", "`0` or `1`", "0")
FAILPOINT = Setting(
    "OMNIGRAPH_FAILPOINT",
    Group.DIAGNOSIS,
    "Stops a write at a named step of the commit protocol, for crash tests: `name=kill`, `name=error`, `name=crash` or"
    " `name=hold:FILE`.",
    "failpoint",
)

# ---- variables of other programs

OPENROUTER_API_KEY = Setting("OPENROUTER_API_KEY", Group.OTHERS, "Key of the provider `openai-compatible`.", "secret")
OPENAI_API_KEY = Setting("OPENAI_API_KEY", Group.OTHERS, "Key of the provider `openai`.", "secret")
GEMINI_API_KEY = Setting("GEMINI_API_KEY", Group.OTHERS, "Key of the provider `gemini`.", "secret")

S3 = (
    Setting("AWS_DEFAULT_REGION", Group.OTHERS, "Region of the bucket. `AWS_REGION` takes precedence.", "name"),
    Setting("AWS_REGION", Group.OTHERS, "Region of the bucket.", "name"),
    Setting("AWS_ACCESS_KEY_ID", Group.OTHERS, "Access key for S3.", "secret"),
    Setting("AWS_SECRET_ACCESS_KEY", Group.OTHERS, "Secret key for S3.", "secret"),
    Setting("AWS_SESSION_TOKEN", Group.OTHERS, "Session token for S3.", "secret"),
    Setting("AWS_ENDPOINT_URL", Group.OTHERS, "Address of an S3-compatible server.", "URL"),
    Setting(
        "AWS_ENDPOINT_URL_S3",
        Group.OTHERS,
        "Takes precedence over `AWS_ENDPOINT_URL`.",
        "URL",
    ),
    Setting("AWS_ALLOW_HTTP", Group.OTHERS, "Allows an S3 address without TLS.", "`true` or `false`", "false"),
    Setting(
        "AWS_S3_FORCE_PATH_STYLE",
        Group.OTHERS,
        "Puts the name of the bucket into the path of the address instead of the host name.",
        "`true` or `false`",
        "false",
    ),
)
"""Variables with which a graph in S3 is reached. The storage options of a call override them."""

NO_COLOR = Setting("NO_COLOR", Group.OTHERS, "If it is set, the command line prints no colours.", "any text")
TERM = Setting("TERM", Group.OTHERS, "Kind of the terminal. If it is `dumb`, there are no colours.", "name")
JAVA_HOME = Setting(
    "JAVA_HOME", Group.OTHERS, "Java installation for Spark.", "directory", unset="`java` on the `PATH`"
)
PATH = Setting("PATH", Group.OTHERS, "Directories that are searched for `java`.", "list")
MASTER = Setting("MASTER", Group.OTHERS, "Spark master if `OMNIGRAPH_SPARK_MASTER` is not set.", "address")
SPARK_HOME = Setting("SPARK_HOME", Group.OTHERS, "Spark installation; its `conf` directory is read.", "directory")
SPARK_CONF_DIR = Setting(
    "SPARK_CONF_DIR", Group.OTHERS, "Directory of `spark-defaults.conf`.", "directory", unset="`conf` in `SPARK_HOME`"
)
PYSPARK_GATEWAY_PORT = Setting(
    "PYSPARK_GATEWAY_PORT", Group.OTHERS, "Set by `spark-submit`: OmniGraph then uses its Java process.", "number"
)
PYSPARK_PYTHON = Setting(
    "PYSPARK_PYTHON", Group.OTHERS, "Python interpreter of Spark tasks.", "command", unset="the running interpreter"
)
TMPDIR = Setting("TMPDIR", Group.OTHERS, "Directory of temporary files, to which loads and queries spill.", "directory")
XDG_CACHE_HOME = Setting(
    "XDG_CACHE_HOME", Group.OTHERS, "The user's cache directory on Linux.", "directory", unset="~/.cache"
)
XDG_STATE_HOME = Setting(
    "XDG_STATE_HOME", Group.OTHERS, "The user's directory of states and logs.", "directory", unset="~/.local/state"
)
LOCALAPPDATA = Setting("LOCALAPPDATA", Group.OTHERS, "The user's cache directory on Windows.", "directory")
PROMETHEUS_MULTIPROC_DIR = Setting(
    "PROMETHEUS_MULTIPROC_DIR",
    Group.OTHERS,
    "Directory in which the workers of a server share their metrics.",
    "directory",
    unset="a temporary directory, with several workers",
)
MALLOC_ARENA_MAX = Setting(
    "MALLOC_ARENA_MAX",
    Group.OTHERS,
    "Arenas of the C allocator (glibc) of a server and its workers.",
    "number",
    unset="one per core, and at least two",
)
HTTPS_PROXY = Setting("HTTPS_PROXY", Group.OTHERS, "Proxy for requests to embedding providers.", "URL")


def all_settings() -> list[Setting]:
    """Every setting, in the order of this module."""
    found: list[Setting] = []
    for value in globals().values():
        if isinstance(value, Setting):
            found.append(value)
        elif value is S3:
            found.extend(S3)
    return found
