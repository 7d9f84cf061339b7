from __future__ import annotations

import random

import pytest

from ingest_api.kafka.frames import FrameBuffer, FrameTooLarge


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def test_frames_come_out_whole_however_the_bytes_are_cut():
    rng = random.Random(7)
    bodies = [rng.randbytes(rng.choice((0, 1, 3, 4, 100, 5_000))) for _ in range(200)]
    stream, at = framed(*bodies), 0
    buffer, got = FrameBuffer(10_000), []
    while at < len(stream):
        step = rng.choice((1, 2, 3, 4, 5, 700, 20_000))
        got += buffer.feed(stream[at : at + step])
        at += step
    assert got == bodies
    assert buffer.under_way_bytes == 0


def test_a_frame_under_way_says_how_long_it_will_be():
    buffer = FrameBuffer(10_000)
    assert buffer.feed(b"\x00\x00") == []
    assert buffer.under_way_bytes == 2
    assert buffer.feed(b"\x03\xe8ab") == []
    assert buffer.under_way_bytes == 1_000
    assert buffer.feed(bytes(998)) == [b"ab" + bytes(998)]
    assert buffer.under_way_bytes == 0


@pytest.mark.parametrize("length", [b"\x00\x00\x27\x11", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
def test_a_frame_that_is_too_long_is_refused_when_it_is_announced(length: bytes):
    buffer = FrameBuffer(10_000)
    with pytest.raises(FrameTooLarge):
        buffer.feed(framed(b"fine") + length)
