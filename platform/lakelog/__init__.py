"""Lakelog: a streaming platform with Kafka's model whose topics are Delta tables.

This package is the log itself: topics, appends, fetches, and their upkeep on a warehouse of Delta tables. It
promises what `platform/ARCHITECTURE.md` lists, to any number of processes on one warehouse. It must not know HTTP,
the Kafka protocol, consumer groups or jobs: those stand on it.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("lakelog")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0"
