"""Storage: addresses, control objects, tables and files. The only package that imports `obstore` and `lance`."""

from omnigraph.storage.pandas_on_demand import hide_pandas_from_lance

hide_pandas_from_lance()
