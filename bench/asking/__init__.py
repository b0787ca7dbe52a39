"""Random questions: the graphs, the questions as values, their texts in three languages, and the engines.

A question is drawn once, as a value of `question`, and rendered to `.gq`, SQL and Cypher. Each engine runs in a process
of its own and takes the time itself.
"""
