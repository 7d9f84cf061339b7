"""What the API's description says of the console's own routes."""

from __future__ import annotations

from ingest_api.routes.schemas import NUMBER, TEXT, Schema, a_list, a_map, an_object, or_null

BOOLEAN: Schema = {"type": "boolean"}
DECIMAL: Schema = {"type": "number"}

_RATES = {"records_in": DECIMAL, "bytes_in": DECIMAL, "records_out": DECIMAL, "bytes_out": DECIMAL}
TOPIC = an_object(
    name=TEXT,
    internal=BOOLEAN,
    partitions=NUMBER,
    records=NUMBER,
    bytes=NUMBER,
    segments=NUMBER,
    max_timestamp_ms=or_null(NUMBER),
    cleanup_policy=TEXT,
    retention_ms=NUMBER,
    retention_bytes=NUMBER,
    per_second=an_object(**_RATES),
)
TOPICS = an_object(topics=a_list(TOPIC))
THROUGHPUT = an_object(interval_ms=NUMBER, end_ms=NUMBER, counts=a_map(a_list(NUMBER)))
SEGMENTS = an_object(
    partitions=a_list(
        an_object(
            partition=NUMBER,
            log_start_offset=NUMBER,
            high_watermark=NUMBER,
            cleaned_up_to=or_null(NUMBER),
            base_offset=a_list(NUMBER),
            end_offset=a_list(NUMBER),
            records=a_list(NUMBER),
            bytes=a_list(NUMBER),
            min_timestamp_ms=a_list(NUMBER),
            max_timestamp_ms=a_list(NUMBER),
            state=a_list({"type": "string", "enum": ["active", "sealed", "clean", "dirty"]}),
            file=a_list(TEXT),
        )
    )
)
GROUPS = an_object(
    groups=a_list(
        an_object(group_id=TEXT, state=TEXT, members=NUMBER, topics=a_list(TEXT), lag=NUMBER, partitions=NUMBER)
    )
)
LAG_HISTORY = an_object(
    times_ms=a_list(NUMBER), lags=a_list(an_object(topic=TEXT, partition=NUMBER, lag=a_list(or_null(NUMBER))))
)
JOBS = an_object(
    due=a_list(an_object(topic=TEXT, partition=NUMBER, job=TEXT, reason=TEXT)),
    waiting=a_list(an_object(topic=TEXT, partition=NUMBER, reason=TEXT)),
    partitions=NUMBER,
    runs=a_list(
        an_object(
            run=TEXT,
            job=TEXT,
            topic=TEXT,
            partition=NUMBER,
            started_at_ms=NUMBER,
            seconds=DECIMAL,
            reason=or_null(TEXT),
            files_before=NUMBER,
            files_after=NUMBER,
            bytes_before=NUMBER,
            bytes_after=NUMBER,
            records_before=NUMBER,
            records_after=NUMBER,
            cleaned_up_to=or_null(NUMBER),
            log_start=or_null(NUMBER),
            error=or_null(TEXT),
        )
    ),
)
