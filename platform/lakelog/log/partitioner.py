"""Which partition a key belongs to.

Owns the hash that Kafka's Java client places keys by, over whole columns of keys, and promises that a key
lands in the partition where a Kafka client would put it. The result depends on the bytes of the key and the
number of partitions alone; who chooses the partition of keyless records, and what a topic is, must not be
known here.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)

# Small enough that a block's columns stay in the processor's cache from one step to the next.
_BLOCK_KEYS = 8192

# A numpy step over a column costs as much as some forty steps in plain Python: a few very long keys are
# walked one by one, or a single key of a megabyte would hold the process for a second.
_FEW_KEYS = 40
_LONG_WORDS = 64

# What is left of a key after its whole words: 0 to 3 bytes of the word that starts there.
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], dtype=np.uint32)


def partition_by_key(keys: pa.BinaryArray, partitions: int, keyless: int) -> npt.NDArray[np.int32]:
    """The partition of every key among `partitions`; `keyless` for null keys."""
    if keys.null_count == len(keys):
        return np.full(len(keys), keyless, dtype=np.int32)
    positive = murmur2(keys).view(np.uint32) & 0x7FFFFFFF
    chosen = (positive % partitions).view(np.int32)
    if keys.null_count:
        chosen[keys.is_null().to_numpy(zero_copy_only=False)] = keyless
    return chosen


def murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Kafka's murmur2 of every key. What stands at the place of a null key means nothing."""
    if keys.type != pa.binary():
        raise TypeError(f"keys are a column of binary, not of {keys.type}")
    hashes = np.empty(len(keys), dtype=np.uint32)
    if len(keys) == 0:
        return hashes.view(np.int32)
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    for start in range(0, len(keys), _BLOCK_KEYS):
        end = min(start + _BLOCK_KEYS, len(keys))
        hashes[start:end] = _hash_block(offsets[start : end + 1], data)
    return hashes.view(np.int32)


def _hash_block(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    first, last = int(offsets[0]), int(offsets[-1])
    # The copy has room behind it, so that the word at a key's last bytes can be read whole.
    padded = np.zeros(last - first + 4, dtype=np.uint8)
    padded[: last - first] = data[first:last]
    # The word that starts at each byte, aligned or not.
    word_at = np.ndarray(last - first + 1, dtype="<u4", buffer=padded, strides=(1,))

    lengths = np.diff(offsets)
    positions = offsets[:-1].astype(np.intp) - first
    order = None
    if np.any(lengths >> 2 != lengths[0] >> 2):
        # Longest first: the keys that still have a word are then a prefix, with no mask to apply.
        order = np.argsort(-(lengths >> 2), kind="stable")
        lengths, positions = lengths[order], positions[order]

    word_counts = lengths >> 2
    ascending = -word_counts
    longest = int(word_counts[0])
    hashes = lengths.astype(np.uint32) ^ _SEED
    for word in range(longest):
        active = int(np.searchsorted(ascending, -word))
        if active < _FEW_KEYS and longest - word > _LONG_WORDS:
            for key in range(active):
                position, words_left = int(positions[key]), int(word_counts[key]) - word
                hashes[key] = _walk(int(hashes[key]), word_at[position::4][:words_left])
                positions[key] += 4 * words_left
            break
        hashes[:active] *= _M
        hashes[:active] ^= _mix(word_at[positions[:active]])
        positions[:active] += 4

    tail_sizes = lengths & 3
    with_tail = (hashes ^ (word_at[positions] & _TAIL_MASKS[tail_sizes])) * _M
    hashes = np.where(tail_sizes == 0, hashes, with_tail)
    hashes ^= hashes >> 13
    hashes *= _M
    hashes ^= hashes >> 15
    if order is None:
        return hashes
    as_given = np.empty_like(hashes)
    as_given[order] = hashes
    return as_given


def _mix(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    mixed = words * _M
    mixed ^= mixed >> 24
    mixed *= _M
    return mixed


def _walk(hashed: int, words: npt.NDArray[np.uint32]) -> int:
    m = int(_M)
    for mixed in _mix(words).tolist():
        hashed = (hashed * m & 0xFFFFFFFF) ^ mixed
    return hashed
