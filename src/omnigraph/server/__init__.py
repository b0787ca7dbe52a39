"""The HTTP server: routes over engine sessions, identity, admission, streaming, metrics and logs."""
