"""A server of tools that speaks the protocol by hand, on its standard input and output.

What it says of its tools stands in a file, so that a test can change it; the file is named by its first argument.
"""

import json
import os
import sys


# One of each kind of content that the protocol has.
RICH = {
    "content": [
        {"type": "text", "text": "tea", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "test://a", "mimeType": "text/plain", "text": "kept"}},
        {"type": "resource_link", "uri": "test://b", "name": "b"},
    ],
    "structuredContent": {"pots": 2},
    "_meta": {"tea/kind": "green", "palyra/waiting": True, "palyra/receipt": {"seq": 1}},
}


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tools(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def called(name, arguments):
    if name == "echo":
        return {"content": [{"type": "text", "text": json.dumps(arguments)}]}
    if name == "rich":
        return RICH
    if name == "pid":
        return {"content": [{"type": "text", "text": str(os.getpid())}]}
    if name == "variable":
        return {"content": [{"type": "text", "text": os.environ.get(arguments["name"], "")}]}
    if name == "die":
        os.kill(os.getpid(), 9)
    if name == "hang":
        return None
    return {"content": [{"type": "text", "text": "no"}], "isError": True}


def answer(message, path):
    method, parameters = message.get("method"), message.get("params", {})
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        server = {"name": "scripted", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": server}
    if method == "tools/list":
        return {"tools": tools(path)}
    if method == "tools/call":
        return called(parameters["name"], parameters.get("arguments", {}))
    return NotImplemented


def main():
    path = sys.argv[1]
    print("ready to serve", file=sys.stderr, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message, path)
        if result is NotImplemented:
            error = {"code": -32601, "message": "Method not found"}
            say({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif result is not None:
            say({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if message["method"] == "tools/call" and message["params"]["name"] == "echo":
            # Whoever changed the file has it told of by the next call.
            say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


main()
