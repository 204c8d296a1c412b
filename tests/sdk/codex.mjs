/**
 * Codex, the real program, with one prompt: `codex.mjs PROMPT`. Prints its JSONL events, and ends with its exit code.
 *
 * See `lab.mjs` for the model it talks to. `PALYRA_CODEX_HOME` is an empty directory for what it keeps, `PALYRA_WORKSPACE` where it works. The
 * MCP server that it has is `palyra`: `PALYRA_MCP` is a JSON list, a program and its arguments, or the URL of one that speaks streamable
 * HTTP, which is shown the token. A program gets the variables that `PALYRA_MCP_ENV` names, separated by commas, and no others of ours.
 * `PALYRA_MCP_SECONDS` is how long a call of a tool may take, 60 unless told.
 *
 * Everything of Codex that would ask another server than these two is off, and so are its own tools: what it does, it does through Palyra.
 * This process becomes Codex, so whoever ends it ends Codex. Standard input has to be at its end: Codex reads it before anything else.
 */
import { writeFileSync } from 'node:fs';
import { arch } from 'node:os';
import { dirname, join } from 'node:path';

import { MODEL, TOKEN, URL_, need, require } from './lab.mjs';

const [prompt, ...more] = process.argv.slice(2);
if (prompt === undefined || more.length > 0) throw new Error('usage: codex.mjs PROMPT');
const home = need('PALYRA_CODEX_HOME');
const workspace = need('PALYRA_WORKSPACE');
const names = (process.env.PALYRA_MCP_ENV ?? '').split(',').filter((name) => name !== '');

/** JSON's strings, lists of them, numbers and truths are TOML's as well. */
const toml = JSON.stringify;
const lines = (table) => Object.entries(table).map(([key, value]) => `${key} = ${toml(value)}\n`).join('');

function server() {
  const mcp = need('PALYRA_MCP');
  if (!mcp.startsWith('[')) return { url: mcp, bearer_token_env_var: 'PALYRA_TOKEN' };
  const [command, ...args] = JSON.parse(mcp);
  return { command, args, env_vars: names };
}

const config = {
  '': {
    model: MODEL, model_provider: 'palyra', approval_policy: 'never', sandbox_mode: 'read-only', web_search: 'disabled',
    check_for_update_on_startup: false,
  },
  analytics: { enabled: false },
  feedback: { enabled: false },
  history: { persistence: 'none' },
  agents: { enabled: false },
  // Plugins are fetched from two servers at every start. The others are tools of its own, or start processes.
  features: {
    plugins: false, remote_plugin: false, apps: false, daemon_auto_start: false, hooks: false, in_app_updates: false, shell_snapshot: false,
    skill_search: false, tool_suggest: false, goals: false, shell_tool: false, unified_exec: false, view_image: false, image_generation: false,
  },
  'model_providers.palyra': {
    name: 'Palyra', base_url: URL_, env_key: 'PALYRA_TOKEN', wire_api: 'responses', request_max_retries: 0, stream_max_retries: 0,
    supports_websockets: false,
  },
  // Without a person, Codex refuses a tool that may change something, unless its server is trusted. Palyra is who asks a person here.
  'mcp_servers.palyra': { ...server(), default_tools_approval_mode: 'approve', tool_timeout_sec: Number(process.env.PALYRA_MCP_SECONDS ?? 60), required: true },
};
const text = Object.entries(config).map(([name, table]) => (name === '' ? '' : `[${name}]\n`) + lines(table)).join('\n');
writeFileSync(join(home, 'config.toml'), text, { mode: 0o600 });

const triple = { x64: 'x86_64-unknown-linux-musl', arm64: 'aarch64-unknown-linux-musl' }[arch()];
const program = join(dirname(require.resolve(`@openai/codex-linux-${arch()}/package.json`)), 'vendor', triple, 'bin/codex');
const kept = Object.fromEntries(names.map((name) => [name, need(name)]));
process.chdir(workspace);
process.execve(
  program,
  [program, 'exec', '--json', '--strict-config', '--skip-git-repo-check', '--ephemeral', '--color', 'never', prompt],
  { PATH: process.env.PATH ?? '/usr/bin:/bin', ...kept, HOME: home, CODEX_HOME: home, PALYRA_TOKEN: TOKEN, RUST_LOG: 'error' },
);
