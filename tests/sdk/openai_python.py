#!/usr/bin/env python3
"""What the `openai` package of Python sees of a server that says it speaks the OpenAI API.

    openai_python.py CASE

`PALYRA_URL` is where the API begins, `PALYRA_TOKEN` the key, `PALYRA_MODEL` the model. Prints one line of JSON with what the client saw and
ends with 0, or prints what is wrong on standard error and ends with 1. The cases are the functions below whose names begin with `case_`.
"""

import json
import os
import sys

import openai

URL = os.environ["PALYRA_URL"]
TOKEN = os.environ["PALYRA_TOKEN"]
MODEL = os.environ["PALYRA_MODEL"]
PROMPT = os.environ.get("PALYRA_PROMPT", "say hi")
ASKED = [{"role": "user", "content": PROMPT}]
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "the weather", "parameters": PLACE, "strict": True}}]
RESPONSE_TOOLS = [{"type": "function", "name": "weather", "description": "the weather", "parameters": PLACE, "strict": True}]

attempts = []


def client(token=TOKEN, retries=0, strict=False):
    """A client whose requests are counted. A strict one refuses whatever does not fit its types."""
    http = openai.DefaultHttpxClient(event_hooks={"request": [lambda request: attempts.append(str(request.url))]}, trust_env=False)
    return openai.OpenAI(base_url=URL, api_key=token, max_retries=retries, timeout=30, http_client=http, _strict_response_validation=strict)


def weather(arguments):
    """The tool that this side has."""
    return f"sunny in {json.loads(arguments)['city']}"


def plain(model):
    return model.model_dump(mode="json", exclude_unset=True, warnings=False) if model is not None else None


def own(model):
    """What Palyra adds, which the client's types do not know."""
    return (model.model_extra or {}).get("palyra")


def completion(found):
    choice = found.choices[0]
    return {
        "id": found.id,
        "model": found.model,
        "object": found.object,
        "text": choice.message.content,
        "finish": choice.finish_reason,
        "calls": calls(choice.message),
        "usage": plain(found.usage),
        "palyra": own(found),
    }


def calls(message):
    return [[call.function.name, call.function.arguments] for call in message.tool_calls or []]


def results(message):
    """The message that asked for tools, and what those came to."""
    said = {"role": "assistant", "content": message.content, "tool_calls": []}
    answers = []
    for call in message.tool_calls:
        function = {"name": call.function.name, "arguments": call.function.arguments}
        said["tool_calls"].append({"id": call.id, "type": "function", "function": function})
        answers.append({"role": "tool", "tool_call_id": call.id, "content": weather(call.function.arguments)})
    return [said, *answers]


def case_models():
    return {"models": [model.id for model in client().models.list()]}


def case_model():
    return {"model": plain(client().models.retrieve(MODEL))}


def case_chat():
    found = client().chat.completions.with_raw_response.create(model=MODEL, messages=ASKED)
    return {**completion(found.parse()), "request_id": found.headers.get("x-request-id")}


def case_stream():
    text, finish, usage, chunks, added = "", [], None, 0, []
    for chunk in client().chat.completions.create(model=MODEL, messages=ASKED, stream=True, stream_options={"include_usage": True}):
        chunks += 1
        usage = chunk.usage or usage
        if own(chunk) is not None:
            added.append(own(chunk))
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish += [choice.finish_reason] if choice.finish_reason else []
    return {"text": text, "finish": finish, "usage": plain(usage), "chunks": chunks, "palyra": added}


def case_tools():
    first = client().chat.completions.create(model=MODEL, messages=ASKED, tools=CHAT_TOOLS)
    need(first.choices[0].finish_reason == "tool_calls", "the model asks for tools", completion(first))
    message = first.choices[0].message
    last = client().chat.completions.create(model=MODEL, messages=[*ASKED, *results(message)], tools=CHAT_TOOLS)
    return {"calls": calls(message), **{key: completion(last)[key] for key in ("text", "finish")}}


def case_tools_stream():
    def streamed(messages):
        # The package's own accumulator is the strictest reader of indexes that there is.
        with client().chat.completions.stream(model=MODEL, messages=messages, tools=CHAT_TOOLS) as stream:
            kinds = [event.type for event in stream]
            return stream.get_final_completion(), kinds

    first, kinds = streamed(ASKED)
    need(first.choices[0].finish_reason == "tool_calls", "the model asks for tools", completion(first))
    need("tool_calls.function.arguments.delta" in kinds, "arguments come in pieces", kinds)
    message = first.choices[0].message
    last, _ = streamed([*ASKED, *results(message)])
    return {"calls": calls(message), **{key: completion(last)[key] for key in ("text", "finish")}}


def response(found):
    items = [item.model_dump(mode="json", exclude_unset=True, warnings=False) for item in found.output]
    error = plain(found.error)
    return {"id": found.id, "status": found.status, "text": found.output_text, "output": items, "usage": plain(found.usage), "error": error}


def case_responses():
    return response(client().responses.create(model=MODEL, input=PROMPT))


def case_responses_stream():
    with client().responses.stream(model=MODEL, input=PROMPT) as stream:
        events = list(stream)
        last = stream.get_final_response()
    numbers = [event.sequence_number for event in events]
    need(numbers == sorted(set(numbers)), "events are numbered in order", numbers)
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    return {**response(last), "events": [event.type for event in events], "deltas": deltas}


def case_responses_previous():
    first = client().responses.create(model=MODEL, input=PROMPT, store=True)
    last = client().responses.create(model=MODEL, input="and then?", previous_response_id=first.id)
    return {"first": first.id, "previous": last.previous_response_id, "text": [first.output_text, last.output_text]}


def case_responses_stored():
    """What is kept of a response: looked at, continued, deleted."""
    responses = client(strict=True).responses
    first = responses.create(model=MODEL, input=PROMPT, metadata={"case": "stored"})
    kept = responses.retrieve(first.id)
    items = [item.content[0].text for item in responses.input_items.list(first.id)]
    with client().responses.stream(model=MODEL, input="and then?", previous_response_id=first.id) as stream:
        last = stream.get_final_response()
    responses.delete(first.id)
    try:
        gone = responses.retrieve(first.id).id
    except openai.NotFoundError as error:
        gone = error.code
    return {
        "same": kept.model_dump() == first.model_dump(),
        "metadata": kept.metadata,
        "store": kept.store,
        "items": items,
        "previous": last.previous_response_id == first.id,
        "text": [first.output_text, last.output_text],
        "gone": gone,
    }


def case_responses_strict():
    return response(client(strict=True).responses.create(model=MODEL, input=PROMPT))


def case_responses_strict_stream():
    events = list(client(strict=True).responses.create(model=MODEL, input=PROMPT, stream=True))
    numbers = [event.sequence_number for event in events]
    need(numbers == list(range(len(events))), "events are numbered without a gap", numbers)
    return {"events": [event.type for event in events], **response(events[-1].response)}


def case_stream_without_usage():
    told = [chunk.usage for chunk in client(strict=True).chat.completions.create(model=MODEL, messages=ASKED, stream=True)]
    return {"chunks": len(told), "usage": [plain(usage) for usage in told if usage is not None]}


def case_responses_tools():
    def asked(messages):
        return client().responses.create(model=MODEL, input=messages, tools=RESPONSE_TOOLS, store=False)

    return two_turns(asked)


def case_responses_tools_stream():
    def asked(messages):
        with client().responses.stream(model=MODEL, input=messages, tools=RESPONSE_TOOLS, store=False) as stream:
            return stream.get_final_response()

    return two_turns(asked)


def two_turns(asked):
    first = asked(ASKED)
    wanted = [item for item in first.output if item.type == "function_call"]
    need(wanted, "the model asks for tools", response(first))
    # A parsed call has a field that no request may have.
    said = [item.model_dump(mode="json", exclude_unset=True, exclude={"parsed_arguments"}, warnings=False) for item in first.output]
    answers = [{"type": "function_call_output", "call_id": item.call_id, "output": weather(item.arguments)} for item in wanted]
    last = asked([*ASKED, *said, *answers])
    return {"calls": [[item.name, item.arguments] for item in wanted], "text": last.output_text}


def case_embeddings():
    found = client().embeddings.create(model=MODEL, input=["one", "three"])
    return {"vectors": [one.embedding for one in found.data], "usage": plain(found.usage)}


def case_embeddings_float():
    found = client().embeddings.create(model=MODEL, input="one", encoding_format="float")
    return {"vectors": [one.embedding for one in found.data], "usage": plain(found.usage)}


def refused(kind, **other):
    """That a chat is refused with an error of a kind, and how often it was tried."""
    options = {"model": MODEL, "messages": ASKED}
    token = other.pop("token", TOKEN)
    try:
        found = client(token=token, retries=2).chat.completions.create(**{**options, **other})
    except kind as error:
        need(isinstance(error.body, dict), "the error has a body", error.body)
        seen = {"status": error.status_code, "type": error.type, "code": error.code, "param": error.param, "message": error.body.get("message")}
        return {**seen, "request_id": error.request_id, "attempts": len(attempts)}
    raise AssertionError(f"nothing was refused: {completion(found)}")


def case_errors_400():
    return refused(openai.BadRequestError, messages=[{"role": "nobody", "content": 1}])


def case_errors_401():
    return refused(openai.AuthenticationError, token="plr_wrong")


def case_errors_403():
    return refused(openai.PermissionDeniedError)


def case_errors_404():
    return refused(openai.NotFoundError, model="there/is-no-such-model")


def case_errors_424():
    return refused(openai.APIStatusError)


def case_errors_429():
    found = client(retries=2).chat.completions.create(model=MODEL, messages=ASKED)
    return {"text": found.choices[0].message.content, "attempts": len(attempts)}


def case_errors_stream():
    """What a stream that fails leaves: what was read, and the error."""
    text = ""
    try:
        for chunk in client().chat.completions.create(model=MODEL, messages=ASKED, stream=True):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
    except Exception as error:  # A connection that breaks is an error of another package.
        body = getattr(error, "body", None)
        return {"text": text, "error": type(error).__name__, "message": body.get("message") if isinstance(body, dict) else str(error)}
    raise AssertionError(f"the stream has an end: {text!r}")


def need(holds, what, found):
    if not holds:
        raise AssertionError(f"{what}: {json.dumps(found, default=str)}")


def main():
    cases = {name.removeprefix("case_").replace("_", "-"): case for name, case in globals().items() if name.startswith("case_")}
    if len(sys.argv) != 2 or sys.argv[1] not in cases:
        sys.exit(f"usage: openai_python.py {' | '.join(cases)}")
    print(json.dumps(cases[sys.argv[1]]()))


main()
