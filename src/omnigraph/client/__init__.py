"""Clients of graphs: on a server, or open in this process, with the same members."""
