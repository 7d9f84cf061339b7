"""What a produce request is answered with."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from lakelog.log.stamp import Appended

_ENTRY = '{"partition":%d,"offset":%d,"error_code":null,"error":null}'
_END = b'],"key_schema_id":null,"value_schema_id":null}'


def offsets_reply(appended: Appended) -> bytes:
    """v2's: one entry a record, in the order of the request. Written by one formatting of all numbers together."""
    places = np.empty((len(appended.offsets), 2), dtype=np.int64)
    places[:, 0], places[:, 1] = appended.partitions, appended.offsets
    entries = ",".join([_ENTRY] * len(places)) % tuple(places.ravel().tolist())
    return b'{"offsets":[' + entries.encode() + _END


def ranges_reply(appended: Appended) -> bytes:
    """A line a partition: the records of one request are neighbours there."""
    return msgspec.json.encode({"records": len(appended.offsets), "ranges": list(_ranges(appended))})


def _ranges(appended: Appended) -> Iterator[dict[str, int]]:
    for partition in np.unique(appended.partitions):
        offsets = appended.offsets[appended.partitions == partition]
        yield {
            "partition": int(partition),
            "start_offset": int(offsets.min()),
            "end_offset": int(offsets.max()) + 1,
        }
