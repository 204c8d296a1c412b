/**
 * What the packages for JavaScript see of an MCP server: `mcp_node.mjs STEPS`. `PALYRA_PACKAGE` is `sdk`, which speaks the older protocol, or
 * `client`. Everything else is as `mcp_python.py` has it.
 */
import { TOKEN, need, require } from './lab.mjs';
import { pathToFileURL } from 'node:url';

const load = (name) => import(pathToFileURL(require.resolve(name)));
const isOlder = need('PALYRA_PACKAGE') === 'sdk';
const mode = need('PALYRA_MODE');
const { Client, StreamableHTTPClientTransport, StdioClientTransport, schemas } = isOlder
  ? {
      ...(await load('@modelcontextprotocol/sdk/client/index.js')),
      ...(await load('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await load('@modelcontextprotocol/sdk/client/stdio.js')),
      schemas: await load('@modelcontextprotocol/sdk/types.js'),
    }
  : { ...(await load('@modelcontextprotocol/client')), ...(await load('@modelcontextprotocol/client/stdio')) };

const urls = [];
let changed;
const change = new Promise((resolve) => (changed = resolve));

const elicits = process.env.PALYRA_ELICITS !== undefined;
const client = new Client(
  { name: 'palyra-tests', version: '1' },
  {
    capabilities: elicits ? { elicitation: { url: {} } } : {},
    listChanged: { tools: { onChanged: () => changed(), autoRefresh: false, debounceMs: 0 } },
    versionNegotiation: mode === 'legacy' || mode === 'auto' ? { mode } : { mode: { pin: mode } },
  },
);
if (elicits) {
  const led = ({ params }) => {
    urls.push(params.url);
    return { action: 'accept' };
  };
  client.setRequestHandler(isOlder ? schemas.ElicitRequestSchema : 'elicitation/create', led);
}

function transport() {
  const mcp = need('PALYRA_MCP');
  if (!mcp.startsWith('[')) {
    return new StreamableHTTPClientTransport(new URL(mcp), { requestInit: { headers: { Authorization: `Bearer ${TOKEN}` } } });
  }
  const [command, ...args] = JSON.parse(mcp);
  const names = (process.env.PALYRA_MCP_ENV ?? '').split(',').filter((name) => name !== '');
  return new StdioClientTransport({ command, args, env: Object.fromEntries(names.map((name) => [name, need(name)])) });
}

const call = (step, options) => {
  const wanted = { name: step.tool, arguments: step.args ?? {} };
  return isOlder ? client.callTool(wanted, undefined, options) : client.callTool(wanted, options);
};

const steps = {
  version: () => (isOlder ? client.transport.protocolVersion ?? client.transport._protocolVersion : client.getNegotiatedProtocolVersion()),
  list: async () => Object.fromEntries((await client.listTools()).tools.map((tool) => [tool.name, tool.annotations])),
  async call(step) {
    const progress = [];
    const options = { timeout: (step.seconds ?? 60) * 1000, ...(step.progress ? { onprogress: ({ message }) => progress.push(message) } : {}) };
    try {
      return { result: await call(step, options), progress, urls: [...urls] };
    } catch (error) {
      return { code: error.code, message: error.message, data: error.data };
    }
  },
  async cancel(step) {
    const signal = AbortSignal.timeout(step.seconds * 1000);
    try {
      await call(step, { signal });
      return 'it was over';
    } catch (error) {
      return { code: error.code ?? 'aborted' };
    }
  },
  async hear_of_change(step) {
    console.error('listening');
    return Promise.race([change.then(() => true), new Promise((resolve) => setTimeout(() => resolve(false), step.seconds * 1000))]);
  },
};

const seen = [];
await client.connect(transport());
for (const step of JSON.parse(process.argv[2])) seen.push((await steps[step.do](step)) ?? null);
await client.close();
console.log(JSON.stringify(seen));
