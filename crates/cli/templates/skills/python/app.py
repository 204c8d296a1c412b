"""The skill `{{id}}`: counts the words, lines and characters of a text.

What the host offers is imported from `wit_world.imports`, such as `log`, and has to stand under `[capabilities]`.
"""

import json

import wit_world
from componentize_py_types import Err
from wit_world.imports.types import Failure


class WitWorld(wit_world.WitWorld):
    def run(self, tool: str, input: str) -> str:
        if tool != "count":
            raise failure("no-such-tool", f"there is no tool `{tool}`")
        text = json.loads(input).get("text")
        if not isinstance(text, str):
            raise failure("bad-input", "`text` is a text")
        return json.dumps(count(text))


def count(text: str) -> dict[str, int]:
    lines = text.count("\n") + (text != "" and not text.endswith("\n"))
    return {"words": len(text.split()), "lines": lines, "characters": len(text)}


def failure(code: str, message: str) -> Err:
    """What is raised is what the caller is told."""
    return Err(Failure(code, message))
