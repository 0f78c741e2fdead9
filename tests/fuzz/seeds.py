#!/usr/bin/env python3
"""Seeds for the fuzz targets: one valid input of each kind, from which mutation starts. usage: seeds.py DIR"""
import os
import struct
import sys
import zlib


def varint(n):
    out = b""
    while True:
        out += bytes([n & 0x7F | (0x80 if n > 0x7F else 0)])
        n >>= 7
        if not n:
            return out


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(header, payload=b""):
    return struct.pack(">I", len(header)) + header + payload


def record(body=b"hello", topic=b"T", props=b"TAGS\x01A\x02UNIQ_KEY\x01K", sys_flag=0):
    born = b"\x7f\x00\x00\x01" + struct.pack(">I", 1)
    rest = struct.pack(">IIiiqqIq", 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, 0, 0, 7, 4096, sys_flag, 1)
    rest += born + struct.pack(">q", 2) + born + struct.pack(">iq", 0, 0)
    rest += struct.pack(">I", len(body)) + body + bytes([len(topic)]) + topic
    rest += struct.pack(">H", len(props)) + props
    return struct.pack(">I", len(rest) + 4) + rest


send = field(1, b"G") + field(2, b"T") + field(7, b"TAGS\x01A")
pull = field(1, b"G") + field(2, b"T") + field(5, 32) + field(9, 1) + field(10, b"A || B")
heartbeat = field(1, b"P") + field(2, field(1, b"G") + field(5, field(1, b"T") + field(2, b"*")))
register = field(1, b"C") + field(2, b"b") + field(4, b"127.0.0.1:1") + field(8, 1) + field(9, field(1, b"T") + field(2, 4))
route = field(1, field(1, b"b") + field(2, 4)) + field(2, field(1, b"C") + field(2, b"b") + field(3, field(2, b"h:1")))

seeds = {
    "request": [frame(field(1, 1) + field(3, b"c@1") + field(n, body), payload) for n, body, payload in (
        (10, send, b"body"), (11, field(2, b"T") + field(4, 1), record()), (12, pull, b""),
        (30, heartbeat, b""), (70, register, b""))],
    "response": [frame(field(2, b"text") + field(n, body), payload) for n, body, payload in (
        (10, field(2, 7), b""), (12, field(1, 8) + field(4, 1), record()), (72, route, b""))],
    "record": [record(), record(b""), record(props=b"")],
    "pulled": [record() + record(b"", b"TT", b""), record()],
    "compress": [b"\3" + zlib.compress(b"TernMQ " * 30), b"\1" + bytes.fromhex(
        "04224d186440a7110000007f5465726e4d51200700b350726e4d5120000000000bcd7b51"), b"\2" + bytes.fromhex(
        "28b52ffd24d2750000385465726e4d512001004851c5088fa5ab43")],
    "trace": [b"Pub\x011\x01R\x01g\x01T\x01ID\x01tag\x01k\x01h:1\x0110\x012\x010\x01OFF\x01true\x02"
              b"SubBefore\x011\x01R\x01g\x01rq\x01ID\x010\x01k\x02SubAfter\x01rq\x01ID\x013\x01true\x01k\x010\x01"
              b"1\x01g\x02"],
    "text": [b"\0A || B", b"\1{\"offsetTable\":{\"T@G\":{0:10,1:7}}}", b"\2Topic-1", b"\3" + b"7F00000100002A9F0000000000001000",
             b"\3127.0.0.1:80", b"\3[::1]:80"],
    "sql": [b"a = 1 AND NOT b IN ('x', 'it''s') OR c BETWEEN -1.5e3 AND 7L\na\x011\x02b\x01x\x02c\x01-2",
            b"(a IS NOT NULL) = TRUE /* x */ AND b <> c -- y\na\x01true\x02b\x015\x02c\x01.5"],
    "config": [b"number: 5\nsize: 4MiB\nduration: 15s\nflag: true\nchoice: B\ntext: \"x\"\n"],
}
for name, inputs in seeds.items():
    folder = os.path.join(sys.argv[1], name)
    os.makedirs(folder, exist_ok=True)
    for i, data in enumerate(inputs):
        with open(os.path.join(folder, "seed%d" % i), "wb") as out:
            out.write(data)
