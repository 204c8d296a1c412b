/** What the `openai` package of Node sees of a server that says it speaks the OpenAI API: `openai_node.mjs CASE`, see `lab.mjs`. */
import { MODEL, PLACE, PROMPT, TOKEN, URL_, check, counted, require, run, tried, weather } from './lab.mjs';

const { OpenAI } = require('openai');
const ASKED = [{ role: 'user', content: PROMPT }];
const CHAT_TOOLS = [{ type: 'function', function: { name: 'weather', description: 'the weather', parameters: PLACE, strict: true } }];
const RESPONSE_TOOLS = [{ type: 'function', name: 'weather', description: 'the weather', parameters: PLACE, strict: true }];

const client = ({ apiKey = TOKEN, maxRetries = 0 } = {}) => new OpenAI({ baseURL: URL_, apiKey, maxRetries, timeout: 30_000, fetch: counted });
const calls = (message) => (message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);

function completion(found) {
  const [choice] = found.choices;
  const { id, model, object, usage = null, palyra = null } = found;
  return { id, model, object, text: choice.message.content, finish: choice.finish_reason, calls: calls(choice.message), usage, palyra };
}

/** The message that asked for tools, and what those came to. */
function results(message) {
  const answers = message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: weather(JSON.parse(call.function.arguments)) }));
  const asked = message.tool_calls.map(({ id, function: { name, arguments: words } }) => ({ id, type: 'function', function: { name, arguments: words } }));
  return [{ role: 'assistant', content: message.content, tool_calls: asked }, ...answers];
}

async function twoChats(asked) {
  const first = await asked(ASKED);
  check(first.choices[0].finish_reason === 'tool_calls', 'the model asks for tools', completion(first));
  const { message } = first.choices[0];
  const { text, finish } = completion(await asked([...ASKED, ...results(message)]));
  return { calls: calls(message), text, finish };
}

function response(found) {
  const { id, status, output, usage = null, error = null } = found;
  return { id, status, text: found.output_text, output, usage, error };
}

async function twoResponses(asked) {
  const first = await asked(ASKED);
  const wanted = first.output.filter(({ type }) => type === 'function_call');
  check(wanted.length > 0, 'the model asks for tools', response(first));
  // A parsed call has a field that no request may have.
  const said = first.output.map(({ parsed_arguments: _, ...item }) => item);
  const answers = wanted.map((item) => ({ type: 'function_call_output', call_id: item.call_id, output: weather(JSON.parse(item.arguments)) }));
  const last = await asked([...ASKED, ...said, ...answers]);
  return { calls: wanted.map((item) => [item.name, item.arguments]), text: last.output_text };
}

/** That a chat is refused with an error of a kind, and how often it was tried. */
async function refused(kind, { apiKey, ...other } = {}) {
  let found;
  try {
    found = await client({ apiKey, maxRetries: 2 }).chat.completions.create({ model: MODEL, messages: ASKED, ...other });
  } catch (error) {
    if (!(error instanceof kind)) throw error;
    const { status, type = null, code = null, param = null, requestID = null } = error;
    return { status, type, code, param, message: error.error?.message ?? null, request_id: requestID, attempts: tried() };
  }
  throw new Error(`nothing was refused: ${JSON.stringify(found)}`);
}

await run({
  models: async () => {
    const models = [];
    for await (const model of client().models.list()) models.push(model.id);
    return { models };
  },
  model: async () => ({ model: await client().models.retrieve(MODEL) }),
  chat: async () => {
    const { data, request_id } = await client().chat.completions.create({ model: MODEL, messages: ASKED }).withResponse();
    return { ...completion(data), request_id };
  },
  stream: async () => {
    const seen = { text: '', finish: [], usage: null, chunks: 0, palyra: [] };
    for await (const chunk of await client().chat.completions.create({ model: MODEL, messages: ASKED, stream: true, stream_options: { include_usage: true } })) {
      seen.chunks += 1;
      seen.usage = chunk.usage ?? seen.usage;
      if (chunk.palyra !== undefined) seen.palyra.push(chunk.palyra);
      for (const choice of chunk.choices) {
        seen.text += choice.delta.content ?? '';
        if (choice.finish_reason) seen.finish.push(choice.finish_reason);
      }
    }
    return seen;
  },
  tools: () => twoChats((messages) => client().chat.completions.create({ model: MODEL, messages, tools: CHAT_TOOLS })),
  'tools-stream': () => twoChats((messages) => client().chat.completions.stream({ model: MODEL, messages, tools: CHAT_TOOLS }).finalChatCompletion()),
  responses: async () => response(await client().responses.create({ model: MODEL, input: PROMPT })),
  'responses-stream': async () => {
    const stream = client().responses.stream({ model: MODEL, input: PROMPT });
    const events = [];
    for await (const event of stream) events.push(event);
    const numbers = events.map((event) => event.sequence_number);
    check(numbers.every((number, index) => index === 0 || number > numbers[index - 1]), 'events are numbered in order', numbers);
    const deltas = events.filter(({ type }) => type === 'response.output_text.delta').map(({ delta }) => delta).join('');
    return { ...response(await stream.finalResponse()), events: events.map(({ type }) => type), deltas };
  },
  'responses-previous': async () => {
    const first = await client().responses.create({ model: MODEL, input: PROMPT, store: true });
    const last = await client().responses.create({ model: MODEL, input: 'and then?', previous_response_id: first.id });
    return { first: first.id, previous: last.previous_response_id, text: [first.output_text, last.output_text] };
  },
  'responses-stored': async () => {
    const { responses } = client();
    const first = await responses.create({ model: MODEL, input: PROMPT, metadata: { case: 'stored' } });
    const kept = await responses.retrieve(first.id);
    const items = [];
    for await (const item of responses.inputItems.list(first.id)) items.push(item.content[0].text);
    const last = await responses.stream({ model: MODEL, input: 'and then?', previous_response_id: first.id }).finalResponse();
    await responses.delete(first.id);
    const gone = await responses.retrieve(first.id).then(({ id }) => id, (error) => error.code);
    const same = JSON.stringify(kept.output) === JSON.stringify(first.output) && kept.id === first.id;
    const text = [first.output_text, last.output_text];
    return { same, metadata: kept.metadata, store: kept.store, items, previous: last.previous_response_id === first.id, text, gone };
  },
  'stream-without-usage': async () => {
    const told = [];
    for await (const chunk of await client().chat.completions.create({ model: MODEL, messages: ASKED, stream: true })) told.push(chunk.usage ?? null);
    return { chunks: told.length, usage: told.filter((usage) => usage !== null) };
  },
  'responses-tools': () => twoResponses((input) => client().responses.create({ model: MODEL, input, tools: RESPONSE_TOOLS, store: false })),
  'responses-tools-stream': () => twoResponses((input) => client().responses.stream({ model: MODEL, input, tools: RESPONSE_TOOLS, store: false }).finalResponse()),
  embeddings: async () => {
    const { data, usage } = await client().embeddings.create({ model: MODEL, input: ['one', 'three'] });
    return { vectors: data.map(({ embedding }) => Array.from(embedding)), usage };
  },
  'embeddings-float': async () => {
    const { data, usage } = await client().embeddings.create({ model: MODEL, input: 'one', encoding_format: 'float' });
    return { vectors: data.map(({ embedding }) => embedding), usage };
  },
  'errors-400': () => refused(OpenAI.BadRequestError, { messages: [{ role: 'nobody', content: 1 }] }),
  'errors-401': () => refused(OpenAI.AuthenticationError, { apiKey: 'plr_wrong' }),
  'errors-403': () => refused(OpenAI.PermissionDeniedError),
  'errors-404': () => refused(OpenAI.NotFoundError, { model: 'there/is-no-such-model' }),
  'errors-424': () => refused(OpenAI.APIError),
  'errors-429': async () => {
    const found = await client({ maxRetries: 2 }).chat.completions.create({ model: MODEL, messages: ASKED });
    return { text: found.choices[0].message.content, attempts: tried() };
  },
  'errors-stream': async () => {
    let text = '';
    try {
      for await (const chunk of await client().chat.completions.create({ model: MODEL, messages: ASKED, stream: true })) {
        text += chunk.choices.map((choice) => choice.delta.content ?? '').join('');
      }
    } catch (error) {
      return { text, error: error.constructor.name, message: error.error?.message ?? error.message };
    }
    throw new Error(`the stream has an end: ${text}`);
  },
});
