# SPDX-License-Identifier: MIT
"""How many colours a PNG has, and what part of it is its most frequent one: png.py FILE

prints "WIDTH HEIGHT COLOURS PART"; PART in percent. For 8 bits a sample, RGB or RGBA, not interlaced:
what a browser's screenshot is (PNG specification, sections 11.2 and 9)."""
import collections
import struct
import sys
import zlib


def chunks(data):
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + length]
        at += length + 12


def paeth(left, up, corner):
    estimate = left + up - corner
    return min((left, up, corner), key=lambda value: abs(estimate - value))


def rows(raw, stride, step):
    previous = bytearray(stride)
    for at in range(0, len(raw), stride + 1):
        kind, row = raw[at], bytearray(raw[at + 1:at + 1 + stride])
        for i in range(stride) if kind else ():
            left, corner = (row[i - step], previous[i - step]) if i >= step else (0, 0)
            row[i] = row[i] + (0, left, previous[i], (left + previous[i]) // 2,
                               paeth(left, previous[i], corner))[kind] & 255
        previous = row
        yield row


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    parts = list(chunks(data))
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and depth == 8 and kind in (2, 6) and not interlaced
    step = 3 if kind == 2 else 4
    raw = zlib.decompress(b"".join(part for name, part in parts if name == b"IDAT"))
    colours = collections.Counter()
    for row in rows(raw, width * step, step):
        colours.update(row[i:i + 3].hex() for i in range(0, len(row), step))
    print(width, height, len(colours), colours.most_common(1)[0][1] * 100 // (width * height))


main()
