"""How one input of bytes becomes several: a number that chooses a parser, and pieces for it.

The first byte is the number; each piece has its length (two bytes) in front. Law: every input of bytes can be
cut, and what was joined is cut into the same.
"""

from __future__ import annotations

from collections.abc import Sequence

PIECE_BYTES_MAX = 0xFFFF
PIECES_MAX = 64


def joined(number: int, *pieces: bytes) -> bytes:
    """Return the input that is cut into `number` and `pieces`; what is too long for a piece is cut off."""
    body = [len(piece[:PIECE_BYTES_MAX]).to_bytes(2, "big") + piece[:PIECE_BYTES_MAX] for piece in pieces]
    return bytes([number % 256]) + b"".join(body)


def cut(data: bytes) -> tuple[int, list[bytes]]:
    """Return the number and the pieces of an input; the last piece may be shorter than it says."""
    pieces, at = [], 1
    while at + 2 <= len(data) and len(pieces) < PIECES_MAX:
        size = int.from_bytes(data[at : at + 2], "big")
        pieces.append(data[at + 2 : at + 2 + size])
        at += 2 + size
    return (data[0] if data else 0), pieces


def filled(pieces: Sequence[bytes], count: int) -> list[bytes]:
    """Return so many pieces, empty ones where there are fewer."""
    return [*pieces[:count], *([b""] * (count - len(pieces)))]
