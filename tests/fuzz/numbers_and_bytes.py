"""Damage to numbers, texts and bytes, whatever file they stand in."""

from __future__ import annotations

from random import Random

__all__ = ["bad_bytes", "bad_number", "bad_text"]

_EDGES = [2**n + d for n in (7, 8, 15, 16, 24, 31, 32, 40, 48, 53, 61, 62, 63) for d in (-1, 0, 1)]


def bad_number(random: Random, number: int) -> int:
    """Another number: nearby, a multiple, an edge, or anything of 64 bits."""
    way = random.randrange(6)
    if way == 0:
        return number + random.choice((-33, -32, -2, -1, 1, 2, 31, 32, 33))
    if way == 1:
        return number * random.choice((2, 3, 16, 2**16, 2**32)) + random.choice((-1, 0, 1))
    if way == 2:
        return number // random.choice((2, 3, 32))
    if way == 3:
        return random.choice((0, 1, -1, 2**64 - 1, 2**64 - 32, 2**64 - number))
    return random.choice(_EDGES) if way == 4 else random.getrandbits(random.randrange(1, 65))


def bad_text(random: Random, data: bytes) -> bytes:
    """Another text: empty, long, cut, repeated, or not UTF-8."""
    middle = len(data) // 2
    return random.choice(
        (
            b"",
            data[:middle],
            data + data,
            data.upper(),
            b"\0" + data,
            data[:middle] + b"\xff\xfe" + data[middle:],
            data + b"\xed\xa0\x80",  # a surrogate
            data + "\u202e\x1b[31m".encode(),
            b"x" * 10_000,
            b" ",
            bytes(random.randrange(256) for _ in range(8)),
        )
    )


def bad_bytes(random: Random, data: bytes, end: int) -> tuple[str, bytes]:
    """Damage some bytes before `end`: set, flip, cut out, double, insert or exchange them."""
    changed = bytearray(data)
    place = random.randrange(max(end, 1))
    size = random.choice((1, 1, 2, 4, 8, 33, 500))
    way = random.choice(("set", "flip", "fill", "cut", "double", "insert", "move", "infinite"))
    if way == "set":
        for _ in range(random.choice((1, 2, 8))):
            changed[random.randrange(max(end, 1)) % len(changed)] = random.randrange(256)
    elif way == "flip":
        changed[place % len(changed)] ^= 1 << random.randrange(8)
    elif way == "fill":
        changed[place : place + size] = random.choice((b"\0", b"\xff")) * size
    elif way == "cut":
        del changed[place : place + size]
    elif way == "double":
        changed[place:place] = changed[place : place + size]
    elif way == "insert":
        changed[place:place] = random.randbytes(size)
    elif way == "move":
        other = random.randrange(max(end, 1))
        changed[place : place + size] = changed[other : other + size]
    else:  # half floats and floats that are no numbers
        changed[place : place + 4] = random.choice((b"\0\x7c\0\x7c", b"\0\0\x80\x7f", b"\xff" * 4))
    return f"{way} {size} at {place}", bytes(changed)
