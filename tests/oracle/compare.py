#!/usr/bin/env python3
"""Compares what RocketMQ's reader prints of a store with what mqstore reads there itself.

    compare.py MANIFEST.jsonl MQSTORE DIR

MANIFEST is the output of "StoreOracle read" for a copy of DIR. Every message of the manifest must
be the record that mqstore dumps at its offset; every record must be in the manifest, but for those
that take no queue offset (prepared and rolled back) or lie at or beyond the end that RocketMQ found.
Exit 1 when they disagree.
"""
import json
import subprocess
import sys

FIELDS = ["topic", "queueId", "queueOffset", "physOffset", "size", "msgId", "flag", "sysFlag",
          "bornTimestamp", "storeTimestamp", "reconsumeTimes", "preparedTransactionOffset",
          "bodyLength", "bodyCRC"]
UNDISPATCHED = (0x4, 0xC)  # types in the bits 0xC of sysFlag


def host(text):
    """RocketMQ's "address port" in mqstore's form."""
    address, port = text.rsplit(" ", 1)
    if ":" not in address:
        return f"{address}:{port}"
    import ipaddress
    return f"[{ipaddress.ip_address(address)}]:{port}"


def main():
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as lines:
        manifest = [json.loads(line) for line in lines]
    dump = subprocess.run([sys.argv[2], "dump", "--json", sys.argv[3]], stdout=subprocess.PIPE,
                          check=False).stdout.decode()
    records = {r["physOffset"]: r for r in map(json.loads, dump.splitlines())}
    end = manifest[0]["recordsEnd"]
    faults = []
    messages = {m["physOffset"]: m for m in manifest if m["kind"] == "message"}
    for offset, message in messages.items():
        record = records.get(offset)
        if record is None:
            faults.append(f"{offset}: RocketMQ has a message, mqstore no record")
            continue
        for field in FIELDS:
            if record[field] != message[field]:
                faults.append(f"{offset}: {field} {message[field]!r} there, {record[field]!r} here")
        for field in ("bornHost", "storeHost"):
            if record[field] != host(message[field]):
                faults.append(f"{offset}: {field} {message[field]!r}, {record[field]!r}")
        if record["properties"] != message["properties"]:
            faults.append(f"{offset}: properties differ")
    for offset, record in records.items():
        if offset < end and offset not in messages and record["sysFlag"] & 0xC not in UNDISPATCHED:
            faults.append(f"{offset}: mqstore has a record, RocketMQ no message")
    below = sum(1 for offset in records if offset < end)
    if below != manifest[0]["records"]:
        faults.append(f"RocketMQ counts {manifest[0]['records']} records, mqstore {below}")
    queries = [m for m in manifest if m["kind"] == "query"]
    for query in queries:
        # RocketMQ stops after 64 entries of the hash, so a common key may give fewer.
        if len(query["physOffsets"]) < min(query["inQueues"], 32):
            faults.append(f"RocketMQ's index gives {len(query['physOffsets'])} of "
                          f"{query['inQueues']} messages for {query['topic']}#{query['key']}")
    for fault in faults[:20]:
        print(fault)
    print(f"{len(messages)} messages, {len(records)} records, {len(queries)} keys: "
          f"{len(faults)} faults")
    return 1 if faults or not messages else 0


if __name__ == "__main__":
    sys.exit(main())
