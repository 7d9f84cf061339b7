"""Delta tables as logs: the store, the files, the commit.

Owns everything that touches the store: opening a table, putting a commit if absent, Parquet in and out, checkpoints.
Promises that a commit lands at most once, at exactly one version, or is known not to have landed.
Must not know HTTP, Spark, groups, or why somebody appends.
"""
