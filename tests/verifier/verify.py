#!/usr/bin/env python3
"""Verifies a bundle of journal records, with nothing from Palyra but the description of the format.

    verify.py BUNDLE [NAME+HASH+KEY]

Prints `OK ...` and ends with 0, or prints `BAD <record> <what is wrong>` and ends with 1. The record is the first bad one.

A record is canonical JSON; its hash is SHA-256(0x00 || text), the leaf hash of RFC 6962. `prev` is the hash of the record before it, and
`body` is SHA-256(salt || body). The checkpoint is a C2SP signed note with an Ed25519 signature.
"""

import base64
import functools
import hashlib
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

IDS = {"approval", "call", "run", "session"}
REQUIRED = {"body": str, "kind": str, "prev": str, "seq": int, "time": int, "v": int}
REPLACED = "the record after it links to another one in its place"
UNLINKED = "it does not link to the record before it"
OWN = {"journal.created", "journal.recovered", "journal.erased", "journal.sealed", "journal.dropped"}


class Bad(Exception):
    """The first bad record, and what is wrong with it."""


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def parsed(text):
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def node(left, right):
    return sha256(b"\x01", left, right)


def genesis(origin):
    return sha256(*(len(part).to_bytes(8, "big") + part for part in (b"palyra journal", origin.encode())))


class Range:
    """The roots of the perfect subtrees over the records so far, largest first."""

    def __init__(self, size, roots):
        heights = [height for height in range(63, -1, -1) if size >> height & 1]
        if len(heights) != len(roots):
            raise Bad(size, "the roots before the first record do not fit its number")
        self.peaks = list(zip(heights, roots))

    def push(self, leaf):
        height, root = 0, leaf
        while self.peaks and self.peaks[-1][0] == height:
            root, height = node(self.peaks.pop()[1], root), height + 1
        self.peaks.append((height, root))

    def root(self):
        return functools.reduce(lambda right, left: node(left, right), [root for _, root in reversed(self.peaks)])


def consistent(old_size, old_root, new_size, new_root, path):
    """RFC 9162, 2.1.4.2: whether the tree of the new root goes on from that of the old one."""
    if old_size >= new_size or not path:
        return (old_size, old_root, []) == (new_size, new_root, path)
    if old_size & (old_size - 1) == 0:
        path = [old_root, *path]
    fn, sn = old_size - 1, new_size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for step in path[1:]:
        if sn and (fn & 1 or fn == sn):
            fr, sr = node(step, fr), node(step, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, step) if sn else b"more steps than levels"
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and fr == old_root and sr == new_root


def open_note(note, key):
    """The size and the root of a checkpoint that the key signed."""
    name, key_hash, encoded = key.split("+", 2)
    public = base64.b64decode(encoded, validate=True)
    if sha256(name.encode(), b"\n", public)[:4].hex() != key_hash or public[:1] != b"\x01":
        raise ValueError("the key is malformed")
    text, signatures = note.rsplit("\n\n", 1)
    for line in signatures.splitlines():
        dash, signer, signature = line.split(" ")
        signature = base64.b64decode(signature, validate=True)
        if dash == "\u2014" and signer == name and signature[:4].hex() == key_hash:
            Ed25519PublicKey.from_public_bytes(public[1:]).verify(signature[4:], f"{text}\n".encode())
            origin, size, root = text.splitlines()
            if origin == name:
                return int(size), base64.b64decode(root, validate=True)
    raise ValueError("not signed for this origin")


class Chain:
    """Records one after the other."""

    def __init__(self, first, last):
        self.first, self.next, self.last = first, first, last
        self.suspect, self.missing, self.erased = None, [], []

    def take(self, line):
        try:
            self.last = self.step(line)
        except Bad as bad:
            # A record that the one after it does not link to is the first bad one, unless that one is.
            raise bad if self.suspect is None else Bad(min(bad.args[0], self.suspect), REPLACED)
        self.next += 1
        return self.last

    def step(self, line):
        seq, text = self.next, line["record"]
        record = parsed(text)
        canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False) == text
        typed = all(type(record.get(name)) is kind for name, kind in REQUIRED.items())
        if not canonical or not typed or set(record) - IDS != set(REQUIRED) or record["v"] != 1:
            raise Bad(seq, "it is not a record in canonical form")
        if record["seq"] != seq:
            raise Bad(seq, f"the record in its place says it is record {record['seq']}")
        self.link(record["prev"] == self.last.hex())
        self.body(record, line["salt"], line["body"])
        return sha256(b"\x00", text.encode())

    def link(self, linked):
        suspect = self.suspect
        if suspect is not None and linked:
            raise Bad(suspect, REPLACED)
        if suspect is not None or (not linked and self.next == self.first):
            self.suspect = None
            raise Bad(self.next if suspect is None else suspect + 1, UNLINKED)
        self.suspect = None if linked else self.next - 1

    def body(self, record, salt, body):
        seq, own = record["seq"], record["kind"] in OWN
        if salt is None and body is None and not own:
            return self.missing.append(seq)
        if salt is None or body is None:
            raise Bad(seq, "of its body and its salt not both are there")
        salt = base64.b64decode(salt)
        if len(salt) != 32 or sha256(salt, body.encode()).hex() != record["body"]:
            raise Bad(seq, "its body is not the one it commits to")
        if record["kind"] == "journal.erased":
            self.erased += [(first, last) for first, last in json.loads(body)["records"] if last < seq]


def verify(lines, pinned=None):
    header = json.loads(next(lines))
    first, key = header["first"], header["key"]
    if (header["format"], header["v"]) != ("palyra-journal-bundle", 1):
        raise Bad(0, "it is of another format or version")
    if pinned not in (None, key) or key.split("+")[0] != header["origin"]:
        raise Bad(first, "the journal is not the one that was expected")
    prev = bytes.fromhex(header["prev"])
    if first == 0 and prev != genesis(header["origin"]):
        raise Bad(0, "the boundary before the first record is not that of the journal")
    chain, tree, closing = Chain(first, prev), Range(first, [bytes.fromhex(root) for root in header["range"]]), None
    for line in map(parsed, lines):
        if closing is None and set(line) == {"record", "salt", "body"}:
            tree.push(chain.take(line))
        elif closing is None and set(line) == {"size", "checkpoint", "consistency"}:
            closing = line
        else:
            raise Bad(chain.next, "a line is no record")
    if closing is None or chain.suspect is not None:
        raise Bad(chain.next if chain.suspect is None else chain.suspect, "it ends too early")
    if closing["size"] != chain.next:
        raise Bad(min(chain.next, closing["size"]), "records are missing or too many")
    try:
        size, root = open_note(closing["checkpoint"], key)
    except (ValueError, InvalidSignature) as error:
        raise Bad(first, "the checkpoint was not signed by the journal's key") from error
    if not consistent(chain.next, tree.root(), size, root, [bytes.fromhex(step) for step in closing["consistency"]]):
        raise Bad(first, "the proof does not lead from the records to the signed checkpoint")
    for seq in chain.missing if size == chain.next else []:
        if not any(low <= seq <= high for low, high in chain.erased):
            raise Bad(seq, "its body is missing, and no record says it was erased")
    return f"OK {chain.next - first} records from {first}, {len(chain.missing)} erased, checkpoint of {size}"


if __name__ == "__main__":
    try:
        with open(sys.argv[1], encoding="utf-8") as lines:
            print(verify(lines, *sys.argv[2:3]))
    except (Bad, ValueError, KeyError, TypeError, StopIteration) as error:
        sys.exit(print("BAD", *(error.args if isinstance(error, Bad) else (0, "the bundle cannot be understood"))) or 1)
