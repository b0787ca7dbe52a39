"""A public study of graph databases: its data, its questions, and the contenders that answer them.

Each contender is a process of its own with the environment that it needs. It takes orders through a pipe, takes the
time itself, and gives its answers as Arrow, so that they can be compared.
"""
