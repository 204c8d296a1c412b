#!/usr/bin/env python3
"""What the `mcp` package of Python sees of an MCP server.

    mcp_python.py STEPS

`PALYRA_MCP` is the URL of a server that speaks Streamable HTTP, which is shown `PALYRA_TOKEN`, or a JSON list: a program and its arguments,
which gets the variables that `PALYRA_MCP_ENV` names. `PALYRA_MODE` is `legacy`, `auto` or a version. STEPS is a JSON list; the
functions below whose names begin with `step_` are what can be done. Prints a JSON list of what came of each.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

progress = []
urls = []
changes = asyncio.Event()


async def elicited(_context, params):
    """A user who is led somewhere, and says yes to that."""
    urls.append(getattr(params, "url", None))
    return ElicitResult(action="accept")


async def noticed(message):
    if getattr(message, "method", None) == "notifications/tools/list_changed":
        changes.set()


async def told(_progress, _total, message):
    progress.append(message)


def transport():
    mcp = os.environ["PALYRA_MCP"]
    if mcp.startswith("["):
        command, *args = json.loads(mcp)
        names = os.environ.get("PALYRA_MCP_ENV", "").split(",")
        return StdioServerParameters(command=command, args=args, env={name: os.environ[name] for name in names if name})
    headers = {"Authorization": f"Bearer {os.environ['PALYRA_TOKEN']}"}
    return streamable_http_client(mcp, http_client=httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False))


async def step_version(client, _):
    return client.session.protocol_version


async def step_list(client, _):
    tools = (await client.list_tools()).tools
    return {tool.name: tool.annotations.model_dump(exclude_none=True, by_alias=True) for tool in tools}


async def step_call(client, step):
    progress.clear()
    try:
        result = await client.call_tool(
            step["tool"], step.get("args", {}), read_timeout_seconds=step.get("seconds", 60), progress_callback=told if step.get("progress") else None
        )
    except MCPError as error:
        return {"code": error.error.code, "message": error.error.message, "data": error.error.data}
    seen = result.model_dump(mode="json", exclude_none=True, by_alias=True)
    return {"result": seen, "progress": list(progress), "urls": list(urls)}


async def step_cancel(client, step):
    """A call that its client gives up."""
    try:
        await client.call_tool(step["tool"], step.get("args", {}), read_timeout_seconds=step["seconds"])
    except MCPError as error:
        return {"code": error.error.code}
    return "it was over"


async def step_hear_of_change(client, step):
    """Waits until the tools are not the same any more."""
    print("listening", file=sys.stderr, flush=True)
    if client.session.protocol_version < "2026":
        await asyncio.wait_for(changes.wait(), step["seconds"])
        return True
    async with asyncio.timeout(step["seconds"]):
        async with client.listen(tools_list_changed=True) as heard:
            async for _ in heard:
                return True


async def main():
    steps = {name.removeprefix("step_"): step for name, step in globals().items() if name.startswith("step_")}
    seen = []
    elicits = elicited if os.environ.get("PALYRA_ELICITS") else None
    async with Client(
        transport(), mode=os.environ["PALYRA_MODE"], elicitation_callback=elicits, message_handler=noticed
    ) as client:
        for step in json.loads(sys.argv[1]):
            seen.append(await steps[step["do"]](client, step))
    print(json.dumps(seen))


asyncio.run(main())
