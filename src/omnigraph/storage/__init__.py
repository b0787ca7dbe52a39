"""Where a graph lies: addresses, control objects and tables. The only home of `obstore` and `lance`."""
