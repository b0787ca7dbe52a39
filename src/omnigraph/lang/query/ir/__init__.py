"""The typed IR of queries: the contract between the language and everything that runs it."""

from omnigraph.lang.query.ir.codec import dumps, fingerprint, from_json, to_json
from omnigraph.lang.query.ir.expr import *
from omnigraph.lang.query.ir.query import *
from omnigraph.lang.query.ir.text import expression, render
