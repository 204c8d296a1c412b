/** What the AI SDK sees of a server that says it speaks the OpenAI API: `ai_sdk.mjs CASE`, see `lab.mjs`. */
import { MODEL, PLACE, PROMPT, TOKEN, URL_, check, counted, require, run, tried, weather } from './lab.mjs';

const { APICallError, RetryError, embedMany, generateText, isStepCount, jsonSchema, streamText, tool } = require('ai');
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');

const provider = (apiKey = TOKEN) => createOpenAICompatible({ name: 'palyra', baseURL: URL_, apiKey, includeUsage: true, fetch: counted });
const options = (other = {}) => ({ model: provider().chatModel(MODEL), prompt: PROMPT, maxRetries: 0, abortSignal: AbortSignal.timeout(30_000), ...other });
const TOOLS = { weather: tool({ description: 'the weather', inputSchema: jsonSchema(PLACE), execute: async (place) => weather(place) }) };

const counts = ({ inputTokens, outputTokens, totalTokens }) => ({ inputTokens, outputTokens, totalTokens });

function round(steps, text) {
  const used = steps.flatMap((step) => step.toolCalls.map((call) => [call.toolName, call.input]));
  check(used.length > 0, 'the model asks for tools', steps.map((step) => step.finishReason));
  return { calls: used, results: steps.flatMap((step) => step.toolResults.map((result) => result.output)), steps: steps.length, text };
}

/** That a text is refused with a status, and how often it was tried. */
async function refused(status, { apiKey, model = MODEL } = {}) {
  let found;
  try {
    found = await generateText(options({ model: provider(apiKey).chatModel(model), maxRetries: 2 }));
  } catch (error) {
    const last = RetryError.isInstance(error) ? error.lastError : error;
    if (!APICallError.isInstance(last) || last.statusCode !== status) throw error;
    const { type = null, code = null, message = null } = JSON.parse(last.responseBody).error;
    return { status, type, code, message, said: last.message, retryable: last.isRetryable, attempts: tried() };
  }
  throw new Error(`nothing was refused: ${found.text}`);
}

await run({
  text: async () => {
    const { text, finishReason, usage, response } = await generateText(options());
    return { text, finish: finishReason, usage: counts(usage), id: response.id, model: response.modelId };
  },
  stream: async () => {
    const errors = [];
    const stream = streamText(options({ onError: ({ error }) => errors.push(error) }));
    const pieces = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    if (errors.length > 0) throw errors[0];
    return { text: pieces.join(''), pieces: pieces.length, finish: await stream.finishReason, usage: counts(await stream.usage) };
  },
  tools: async () => {
    const { steps, text } = await generateText(options({ tools: TOOLS, stopWhen: isStepCount(4) }));
    return round(steps, text);
  },
  'tools-stream': async () => {
    const errors = [];
    const stream = streamText(options({ tools: TOOLS, stopWhen: isStepCount(4), onError: ({ error }) => errors.push(error) }));
    await stream.consumeStream();
    if (errors.length > 0) throw errors[0];
    return round(await stream.steps, await stream.text);
  },
  embeddings: async () => {
    const { embeddings, usage } = await embedMany({ model: provider().embeddingModel(MODEL), values: ['one', 'three'], maxRetries: 0 });
    return { vectors: embeddings, usage };
  },
  'errors-401': () => refused(401, { apiKey: 'plr_wrong' }),
  'errors-403': () => refused(403),
  'errors-404': () => refused(404, { model: 'there/is-no-such-model' }),
  'errors-424': () => refused(424),
  'errors-429': async () => {
    const { text } = await generateText(options({ maxRetries: 2 }));
    return { text, attempts: tried() };
  },
  'errors-stream': async () => {
    const errors = [];
    const stream = streamText(options({ onError: ({ error }) => errors.push(error) }));
    let text = '';
    try {
      for await (const piece of stream.textStream) text += piece;
    } catch (error) {
      errors.push(error);
    }
    check(errors.length > 0, 'the stream has an end', text);
    return { text, error: errors[0]?.name ?? null, message: errors[0]?.message ?? String(errors[0]) };
  },
});
