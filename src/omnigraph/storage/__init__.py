"""Storage: addresses, control objects, tables and files. The only package that imports `obstore` and `lance`."""
