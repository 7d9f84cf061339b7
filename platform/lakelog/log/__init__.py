"""The log's decisions, as plain code.

Everything here takes values and returns values: it does no I/O, has no clock and keeps no task running. Time,
where it matters, comes in as `now_ms`.
"""
