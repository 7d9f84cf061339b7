"""Whether bytes are UTF-8. Asked of whole bodies, so nothing is made of them on the way to the answer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    ends = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
