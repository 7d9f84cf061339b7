"""Lakelog in Spark.

Owns everything of the core that needs pyspark, which is an optional extra: without it this package can be imported, and
what needs Spark says what to install. Promises that a session made here reads every topic as the Delta table that it
is, on a laptop and under spark-submit alike.
Must not know HTTP, groups or the gateway, and nothing of the core outside of this package may import Spark.

Topics are read and written with `format("lakelog")`, whose columns and options are those of Spark's Kafka source and
sink; the address is the warehouse:

    from lakelog.spark import delta_session

    spark = delta_session()
    orders = spark.readStream.format("lakelog").option("warehouse", "/data").option("subscribe", "orders").load()

A session of `delta_session()` knows the format. Any other session learns it with `lakelog.spark.register(spark)`. On a
cluster lakelog has to be installed for the Python of the executors.

Columns: key, value, topic, partition, offset, timestamp, timestampType, and headers with `includeHeaders`. A schema of
one's own picks columns, and only those are read: `.schema("value BINARY")`.

Source: one of `subscribe` (topics with commas), `subscribePattern`, `assign` (`{"topic": [0, 1]}`); `startingOffsets`
(earliest, latest or `{"topic": {"0": 23, "1": -2}}`), `startingTimestamp`, `startingOffsetsByTimestamp`,
`startingOffsetsByTimestampStrategy` (error, latest); for batches the same with `ending`; for streams
`maxOffsetsPerTrigger`; `minPartitions`, `failOnDataLoss` (true), `includeHeaders` (false). `filterPushdown` (false)
lets filters on topic, partition, offset and timestamp spare the reading of segments and row groups in a batch; set it
only on a DataFrame that one query is made from, because Spark keeps one plan per `load()`. For the same reason a batch
DataFrame shows the records that were there when it was first used: load it again to see newer ones.
Sink: `topic`, or a column topic; columns value and, if wanted, key, headers, partition, timestamp; `txnAppId` and
`txnVersion` make a batch write repeatable. A stream is written in append and complete mode; Spark gives no sink in
Python the update mode, so write from `foreachBatch` with a `txnAppId` of the query's own and its batch number as
`txnVersion`: that is exactly once too, for each topic that the option names. The store's own options are
`lakelog.storage.*`, or its environment.

`format("delta")` reads a topic too, faster for scans, as a table: without the names of Kafka's columns, without
positions by offset or time, and in a stream that lags without records that merges and vacuum have moved.
"""

from lakelog.spark.session import SparkUnavailable, delta_session, register

__all__ = ["SparkUnavailable", "delta_session", "register"]
