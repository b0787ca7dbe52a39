"""Settings of an S3 store, for Lance and the object store client. Options of the caller override the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from urllib.parse import urlsplit

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.settings import S3

# Later aliases override earlier ones of the same setting.
_ALIASES = {
    "default_region": "region",
    "region": "region",
    "token": "session_token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
}
_SECRET = ("access_key_id", "secret_access_key", "session_token", "sse_customer_key_base64")
_RETRIES = "client_max_retries"
_RETRY_SECONDS = "client_retry_timeout"
_LANCE_ONLY = (_RETRIES, _RETRY_SECONDS, "download_retry_count")
_WITHOUT_PREFIX = frozenset(
    (
        *_LANCE_ONLY,
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    )
)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The settings of an S3 client by name, without the prefix `aws_`. Never shown, since some are secret."""

    values: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def resolve(cls, options: Mapping[str, str], environ: Mapping[str, str]) -> S3Settings:
        """Merge the caller's options with the environment.

        Raises:
            InputError: a setting is invalid.
        """
        settings: dict[str, str] = {}
        named = {setting.name: value for setting in S3 if (value := setting.get(environ))}
        for source in (named, options):
            settings.update(_canonical(source))
        if "endpoint" in settings:
            settings["endpoint"] = _endpoint(settings["endpoint"])
            if settings["endpoint"].startswith("http://"):
                settings["allow_http"] = "true"
        if _is_true(settings.pop("s3_force_path_style", "")):
            settings["virtual_hosted_style_request"] = "false"
        for name in (_RETRIES, _RETRY_SECONDS):
            if name in settings and not settings[name].isdecimal():
                raise InputError(
                    f"the storage option {name} is not a whole number", hint="give a number of seconds or attempts"
                )
        return cls(tuple(sorted(settings.items())))

    @property
    def max_retries(self) -> int:
        """Number of retries of an idempotent request."""
        return int(dict(self.values).get(_RETRIES, "5"))

    @property
    def retry_seconds(self) -> int:
        """Maximum total time of retries of one request."""
        return int(dict(self.values).get(_RETRY_SECONDS, "60"))

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not appear in messages."""
        return tuple(value for name, value in self.values if name in _SECRET and value)

    def client_config(self) -> dict[str, str]:
        """The settings in the form of the object store client."""
        config = {name: value for name, value in self.values if name not in _LANCE_ONLY}
        if "endpoint" in config:
            # Set this name, too. Otherwise AWS_ENDPOINT_URL_S3 in the environment would override the caller's endpoint.
            config["aws_endpoint_url_s3"] = config["endpoint"]
        return config

    def lance_options(self) -> dict[str, str]:
        """The settings in the form of Lance."""
        # Use the names with the prefix `aws_`, otherwise environment variables would override the values in Lance.
        options = {name if name in _WITHOUT_PREFIX else f"aws_{name}": value for name, value in self.values}
        if "aws_endpoint" in options:
            options["aws_endpoint_url_s3"] = options["aws_endpoint"]
        return options


def _canonical(source: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = [*_ALIASES]
    plain = [(key.lower().removeprefix("aws_"), value) for key, value in source.items()]
    # Among several aliases of one setting, the last one wins, in any order of the options.
    for name, value in sorted(plain, key=lambda item: names.index(item[0]) if item[0] in names else -1):
        yield _ALIASES.get(name, name), value


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        port_is_a_number = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_a_number = urlsplit(""), False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_a_number:
        raise InputError("the S3 endpoint is not an address", hint="write it as https://host or http://host:port")
    if parts.username or parts.password:
        raise InputError(
            "the S3 endpoint must not contain credentials",
            hint="remove the text before the @, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    return text.rstrip("/")


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
