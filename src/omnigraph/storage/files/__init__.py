"""Files outside the graph: input, output, scratch files and the disk cache of this machine."""
