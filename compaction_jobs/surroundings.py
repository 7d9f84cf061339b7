"""What the jobs' processes are started with, for those who start them without loading the jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping

# In the order in which they make sense one after the other: nothing is compacted that has expired.
JOB_NAMES = ("retention", "compaction", "merge", "offsets", "vacuum")

EVERY_SECONDS = 60.0
WAREHOUSE_VARIABLE = "LAKELOG_WAREHOUSE"
OPTIONS_VARIABLE = "LAKELOG_STORE_OPTIONS"
# The gateways' settings. A job that writes without flushing might lose what they have flushed, and one that is told of
# less retention would take offsets that they still keep.
FSYNC_VARIABLE = "LAKELOG_FSYNC"
RETENTION_VARIABLE = "LAKELOG_OFFSETS_RETENTION_MINUTES"
OFFSETS_RETENTION_MINUTES = 10_080


def options_variable(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a store for a process to be started. They may hold keys, which no list of processes shall show."""
    return {OPTIONS_VARIABLE: json.dumps(dict(options))} if options else {}


def options_of(environment: Mapping[str, str]) -> dict[str, str]:
    return dict(json.loads(environment.get(OPTIONS_VARIABLE, "{}")))
