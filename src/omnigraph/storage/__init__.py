"""Storage: addresses, control objects, tables and files. The only package that imports `obstore` and `lance`."""

from omnigraph.storage.pandas_on_demand import import_lance_without_pandas

import_lance_without_pandas()
