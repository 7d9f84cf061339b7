"""Lakelog in Spark.

Owns everything of the core that needs pyspark, which is an optional extra: without it this package can be imported, and
what needs Spark says what to install. Promises that a session made here reads every topic as the Delta table that it
is, on a laptop and under spark-submit alike.
Must not know HTTP, groups or the gateway, and nothing of the core outside of this package may import Spark.
"""

from lakelog.spark.session import SparkUnavailable, delta_session

__all__ = ["SparkUnavailable", "delta_session"]
