#!/usr/bin/env python3
"""A client of TernMQ in plain Python, without NNG or protobuf: docs/protocol.md as a program.

usage: mini_client.py HOST:PORT TOPIC

Sends one message with SendRequest, pulls it back with PullRequest, compares, exit 0 when they are equal.
"""
import socket
import struct
import sys
import time

REQ_HANDSHAKE = b"\0SP\0\0\x30\0\0"
REP_HANDSHAKE = b"\0SP\0\0\x31\0\0"
SUCCESS = 0
STORED = {0: "SUCCESS", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}


def varint(value):
    value &= (1 << 64) - 1  # negative numbers are sent as 64 bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """One protobuf field: an int as varint, bytes or str length-prefixed. proto3 leaves out zeros."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def parse(data):
    """A message as {field number: last value}; varints as signed 64 bit."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
            value -= (value >> 63) << 64
        elif tag & 7 == 2:
            size, at = read_varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            size = {1: 8, 5: 4}[tag & 7]
            value, at = data[at : at + size], at + size
        fields[tag >> 3] = value
    return fields


class Connection:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        self.socket.sendall(REQ_HANDSHAKE)
        if self.receive(8) != REP_HANDSHAKE:
            raise SystemExit("not a TernMQ server: wrong handshake")
        self.next_id = 0

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise SystemExit("the server closed the connection")
            data += part
        return data

    def call(self, number, body, payload=b"", timeout_ms=3000):
        """Sends Request{body at field `number`} and returns (code, remark, answer's body, payload)."""
        header = field(1, 1) + field(2, timeout_ms) + field(3, "127.0.0.1@mini") + field(number, body)
        frame = struct.pack(">I", len(header)) + header + payload
        self.next_id += 1
        request_id = struct.pack(">I", 0x80000000 | self.next_id)
        self.socket.sendall(struct.pack(">Q", len(request_id + frame)) + request_id + frame)
        (size,) = struct.unpack(">Q", self.receive(8))
        answer = self.receive(size)
        if answer[:4] != request_id:
            raise SystemExit("an answer to something else")
        (header_size,) = struct.unpack(">I", answer[4:8])
        fields = parse(answer[8 : 8 + header_size])
        bodies = [value for key, value in fields.items() if key >= 10]
        remark = fields.get(2, b"").decode()
        return fields.get(1, 0), remark, parse(bodies[0] if bodies else b""), answer[8 + header_size :]


def record_body(record):
    """The body of the message at the beginning of `record`, a CommitLog record."""
    flags = struct.unpack_from(">I", record, 36)[0]
    at = 48 + (20 if flags & 0x10 else 8) + 8 + (20 if flags & 0x20 else 8) + 4 + 8
    (size,) = struct.unpack_from(">I", record, at)
    return record[at + 4 : at + 4 + size]


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    connection = Connection(sys.argv[1])
    topic, text = sys.argv[2], f"hello from {time.time()}".encode() + b"\0\xff"
    send = field(1, "mini_producer") + field(2, topic) + field(3, -1) + field(6, int(time.time() * 1000))
    code, remark, sent, _ = connection.call(10, send, text)
    if code not in STORED:
        raise SystemExit(f"send: code {code}: {remark}")
    queue, offset = sent.get(1, 0), sent.get(2, 0)
    print(f"sent queue={queue} offset={offset} code={STORED[code]}")
    pull = field(1, "mini_consumer") + field(2, topic) + field(3, queue) + field(4, offset)
    pull += field(5, 1) + field(6, 5000) + field(9, 1) + field(10, "*")
    code, remark, pulled, payload = connection.call(12, pull, timeout_ms=10000)
    if code != SUCCESS:
        raise SystemExit(f"pull: code {code}: {remark}")
    print(f"pulled count={pulled.get(4, 0)} next_offset={pulled.get(1, 0)}")
    if record_body(payload) != text:
        raise SystemExit("pull: another body came back")
    print("equal")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        raise SystemExit(f"connection: {error}")
