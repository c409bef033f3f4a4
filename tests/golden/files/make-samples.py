#!/usr/bin/env python3
"""Writes the sample files of this folder, by the formats' descriptions alone: python3 make-samples.py

_f-order.npy    version 2, big-endian i2 in Fortran order, [2, 3]
_palette.png    2 bits, a palette with transparency, interlaced, 5 by 3
_deep.png       16 bits, RGB, interlaced, 3 by 2
_packed.npz     two arrays, one deflated, made by zipfile
_pcm24.wav      2 channels of 24 bits at 8,000 a second, with a chunk of odd length before
"""
import struct, zipfile, zlib


def png(name, width, height, depth, colour, pixels, chunks=()):
    """pixels(x, y) gives the samples of a pixel; Adam7."""
    lace = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x0, y0, dx, dy in lace:
        for y in range(y0, height, dy):
            bits = "".join(format(v, "0%db" % depth) for x in range(x0, width, dx) for v in pixels(x, y))
            if bits:
                bits += "0" * (-len(bits) % 8)
                data += b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big")
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 1)
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(data)), (b"IEND", b"")]:
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    open(name, "wb").write(out)


header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }".ljust(115) + "\n"
elements = struct.pack(">6h", 1, 4, -2, 5, 3, 600)  # [[1, -2, 3], [4, 5, 600]]
open("_f-order.npy", "wb").write(b"\x93NUMPY\2\0" + struct.pack("<I", len(header)) + header.encode() + elements)

with zipfile.ZipFile("_packed.npz", "w") as z:
    f_order = open("_f-order.npy", "rb").read()
    for name, packed in [("one", zipfile.ZIP_DEFLATED), ("gr\u00fcn", zipfile.ZIP_STORED)]:
        z.writestr(zipfile.ZipInfo(name + ".npy"), f_order, packed)

png("_palette.png", 5, 3, 2, 3, lambda x, y: [(x + y) % 4],
    [(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9])), (b"tRNS", bytes([255, 128]))])
png("_deep.png", 3, 2, 16, 2, lambda x, y: [x * 257, y * 0x1234, 65535 - x])

frames = b"".join(struct.pack("<i", v)[:3] for v in [0, 1 << 22, -(1 << 23), (1 << 23) - 1, -1, 1])
chunks = b"note" + struct.pack("<I", 3) + b"odd\0"
chunks += b"fmt " + struct.pack("<IHHIIHH", 16, 1, 2, 8000, 48000, 6, 24)
chunks += b"data" + struct.pack("<I", len(frames)) + frames
open("_pcm24.wav", "wb").write(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
