"""The typed IR of queries: the interface between the compiler and the executors."""

from omnigraph.lang.query.ir.codec import dumps as dumps
from omnigraph.lang.query.ir.codec import fingerprint as fingerprint
from omnigraph.lang.query.ir.codec import from_json as from_json
from omnigraph.lang.query.ir.codec import to_json as to_json
from omnigraph.lang.query.ir.expr import *
from omnigraph.lang.query.ir.query import *
from omnigraph.lang.query.ir.text import expression as expression
from omnigraph.lang.query.ir.text import render as render
