"""Topics by pattern.

Patterns are RE2's, as in Kafka's newer group protocol: matching takes time in proportion to the text, whatever pattern
a client sends, so that none can hold up the others. Internal topics fit no pattern.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import ErrorCode, LakelogError
from lakelog.model.topic import is_internal


def check_pattern(pattern: str) -> None:
    """Raises INVALID_REQUEST with the reason if it is no pattern."""
    _match(pattern, [""])


def fitting(pattern: str, topics: Iterable[str]) -> list[str]:
    """Those topics whose whole name fits the pattern."""
    check_pattern(pattern)  # by itself: inside the parentheses below "a)(b" would be one
    names = [name for name in topics if not is_internal(name)]
    return [name for name, fits in zip(names, _match(f"^(?:{pattern})$", names), strict=True) if fits]


def _match(pattern: str, names: list[str]) -> list[bool]:
    try:
        matched = pc.match_substring_regex(pa.array(names, pa.string()), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise LakelogError(
            ErrorCode.INVALID_REQUEST, f"the topic pattern {pattern!r} is no regular expression of RE2's: {error}"
        ) from None
    found: list[bool] = matched.to_pylist()
    return found
