#!/usr/bin/env python3
"""Meets the control listener with nothing but Python's own library, and prints what came of it as JSON.

    client.py PORT CERTIFICATE KEY AUTHORITIES BEARER
"""

import http.client
import json
import socket
import ssl
import sys

PORT, CERTIFICATE, KEY, AUTHORITIES, BEARER = int(sys.argv[1]), *sys.argv[2:]
CALL = {"tool": "fs.list", "args": {"path": "."}, "workspace": "lab"}
PATIENCE = 20


def trusting():
    return ssl.create_default_context(cafile=AUTHORITIES)


def as_device(version=None):
    context = trusting()
    context.load_cert_chain(CERTIFICATE, KEY)
    if version:
        context.minimum_version = context.maximum_version = version
    return context


def connection(host, context):
    return http.client.HTTPSConnection(host, PORT, context=context, timeout=PATIENCE)


def identity(host, version):
    link = connection(host, as_device(version))
    link.request("GET", "/api/v1/identity")
    spoken = link.sock.version()
    answer = link.getresponse()
    return {"version": spoken, "status": answer.status, "body": json.load(answer)}


def code(method, path, body=None, headers={}):
    link = connection("localhost", as_device())
    link.request(method, path, body and json.dumps(body), {"content-type": "application/json", **headers})
    answer = link.getresponse()
    return [answer.status, json.load(answer)["error"]["code"]]


def refusal_without_certificate(version):
    context = trusting()
    context.minimum_version = context.maximum_version = version
    # Nothing is sent: what arrives after the daemon has hung up could cost the alert.
    try:
        with socket.create_connection(("127.0.0.1", PORT), PATIENCE) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as link:
                return repr(link.recv(1))
    except ssl.SSLError as error:
        return error.reason


def proposal_as_told():
    following = connection("localhost", as_device())
    following.request("GET", "/api/v1/events")
    stream = following.getresponse()
    # What happens from now on is told. A call that is denied is something that happens.
    denied = code("POST", "/api/v1/calls", CALL)
    lines = (line for line in iter(stream.readline, b"") if line.startswith(b"data: "))
    events = (json.loads(line.removeprefix(b"data: ")) for line in lines)
    event = next(event for event in events if event["type"] == "tool.proposed")
    return denied, {
        "content-type": stream.headers["content-type"],
        "tool": event["data"]["tool"],
        "device": event["data"]["device"],
    }


denied, proposal = proposal_as_told()
versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
print(
    json.dumps(
        {
            "identity": [identity(host, version) for host in ("127.0.0.1", "localhost") for version in versions.values()],
            "denied": denied,
            "proposal": proposal,
            "two credentials": code("GET", "/api/v1/identity", headers={"authorization": f"Bearer {BEARER}"}),
            "no certificate": {name: refusal_without_certificate(version) for name, version in versions.items()},
        }
    )
)
