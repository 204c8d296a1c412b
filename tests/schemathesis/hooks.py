"""Leads some of what schemathesis makes up to where something is, and keeps all of it harmless.

A call that is made up names a tool that there is not. Half of them become calls that are allowed and only read; none of them waits for a
person, who would not come. Half of the ids in a path become those of a call, a run and a question that there are.
"""

import os
import re

import schemathesis

ULID = re.compile(r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$")
REAL = {
    "/api/v1/calls/{id}": os.environ["PALYRA_CALL"],
    "/api/v1/calls/{id}/explanation": os.environ["PALYRA_CALL"],
    "/api/v1/runs/{id}": os.environ["PALYRA_RUN"],
    "/api/v1/approvals/{id}": os.environ["PALYRA_APPROVAL"],
}


# What would take away the credential that is tried with, or switch off what is tried, is about something that there is not.
KEPT = {"/api/v1/tokens/{id}": "id", "/api/v1/tokens/{id}/rotate": "id", "/api/v1/devices/{id}": "id", "/api/v1/flags/{name}": "name", "/api/v1/members/{user}": "user"}


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    kept = KEPT.get(context.operation.path)
    if kept and context.operation.method.upper() != "GET" and isinstance((path_parameters or {}).get(kept), str):
        return {**path_parameters, kept: "nothing"}
    real = REAL.get(context.operation.path)
    made_up = (path_parameters or {}).get("id")
    if real and context.operation.method.upper() == "GET" and isinstance(made_up, str) and ULID.match(made_up) and ord(made_up[-1]) % 2:
        return {**path_parameters, "id": real}
    return path_parameters


@schemathesis.hook
def map_body(context, body):
    operation = context.operation
    if operation.path != "/api/v1/calls" or operation.method.upper() != "POST" or not isinstance(body, dict):
        return body
    tool = body.get("tool")
    if isinstance(tool, str) and set(body) <= {"tool", "args", "workspace", "directory", "run", "wait"} and len(tool) % 2:
        return {"tool": "fs.list", "args": {"path": "."}, "workspace": "lab"}
    return body
