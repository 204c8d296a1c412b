/**
 * What the browser tests share: Debian's Chromium with a profile of its own, the daemon as its programs see it, and checks that are
 * told one line each.
 *
 * The environment names the daemon (`PALYRA_URL`, and `PALYRA_CONTROL` where devices connect), the identity of the owner's device
 * (`PALYRA_IDENTITY`), the token of an agent (`PALYRA_AGENT`), a workspace whose calls are asked about (`PALYRA_WORKSPACE`), and where
 * `scripts/setup` put the packages (`PALYRA_BROWSER`).
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import https from 'node:https';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';

export const URL_ = need('PALYRA_URL');
export const AGENT = need('PALYRA_AGENT');
export const WORKSPACE = need('PALYRA_WORKSPACE');

export const require = createRequire(`${need('PALYRA_BROWSER')}/`);
const { chromium } = require('playwright-core');

const FLAGS = [
  '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
  // A name that an attacker would point to this machine.
  '--host-resolver-rules=MAP rebound.example 127.0.0.1',
];

/** Opens a browser with a fresh profile. */
export async function browser(options = {}) {
  const profile = await mkdtemp(join(tmpdir(), 'palyra-browser-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.PALYRA_CHROMIUM ?? '/usr/bin/chromium', args: FLAGS, handleSIGTERM: false, ...options,
  });
  context.setDefaultTimeout(15_000);
  open.push(async () => {
    await context.close();
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  });
  return context;
}

const open = [];
let failures = 0;

/** Tells whether something holds. */
export function check(name, holds, found) {
  if (!holds) failures += 1;
  console.log(holds ? `ok: ${name}` : `FAILED: ${name}${found === undefined ? '' : `: ${JSON.stringify(found)}`}`);
}

/** Tells whether two values are equal. */
export function same(name, found, expected) {
  const holds = isDeepStrictEqual(found, expected);
  check(name, holds, holds ? undefined : { found, expected });
}

/** Runs the parts of a script one after the other, and ends with how it went. A part that breaks off is a failure. */
export async function run(parts) {
  for (const part of parts) {
    const begun = Date.now();
    try {
      await part();
      console.log(`-- ${part.name}: ${Date.now() - begun} ms`);
    } catch (error) {
      check(`${part.name} goes to its end`, false, String(error.stack ?? error));
    }
  }
  for (const close of open) await close().catch(() => undefined);
  console.log(failures === 0 ? 'all checks hold' : `${failures} checks failed`);
  process.exit(failures === 0 ? 0 : 1);
}

/** Waits until something holds. */
export async function until(name, holds, patience = 10_000) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`in vain: ${name}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** Asks the daemon as a program does: with a bearer, without anything (`null`), or else as the owner's device. */
export async function api(method, path, { bearer, body, headers = {} } = {}) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const all = { ...(bearer && { authorization: `Bearer ${bearer}` }), ...(sent !== undefined && { 'content-type': 'application/json' }), ...headers };
  const { status, text } = bearer === undefined ? await byDevice(method, path, all, sent) : await byBearer(method, path, all, sent);
  let said;
  try {
    said = JSON.parse(text);
  } catch {
    said = text;
  }
  return { status, said };
}

async function byBearer(method, path, headers, body) {
  const answer = await fetch(URL_ + path, { method, headers, body, signal: AbortSignal.timeout(20_000) });
  return { status: answer.status, text: await answer.text() };
}

/** Every daemon is `localhost` to its devices; its authority tells it from others. */
function byDevice(method, path, headers, body) {
  const { authorities: ca, certificate: cert, key } = JSON.parse(readFileSync(need('PALYRA_IDENTITY'), 'utf8'));
  const { hostname, port } = new URL(`https://${need('PALYRA_CONTROL')}`);
  const request = https.request({
    method, path, hostname, port, ca, cert, key, servername: 'localhost', timeout: 20_000, headers: { ...headers, host: `localhost:${port}` },
  });
  return new Promise((resolve, reject) => {
    request.on('timeout', () => request.destroy(new Error(`${method} ${path} takes too long`)));
    request.on('error', reject);
    request.on('response', (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (piece) => { text += piece; });
      answer.on('end', () => resolve({ status: answer.statusCode, text }));
      answer.on('error', reject);
    });
    request.end(body);
  });
}

/** A link that opens the console once. */
export async function link() {
  const { status, said } = await api('POST', '/api/v1/console/links');
  if (status >= 300) throw new Error(`no link: ${status} ${JSON.stringify(said)}`);
  return said.url;
}

/** Has the agent propose a call that asks. Returns what will come of it. */
export function propose(command, more = {}) {
  const { args, ...rest } = more;
  return api('POST', '/api/v1/calls', { bearer: AGENT, body: { tool: 'process.run', workspace: WORKSPACE, args: { command, ...args }, ...rest } });
}

/** The questions that wait. */
export async function waiting() {
  return (await api('GET', '/api/v1/approvals')).said.approvals;
}

/** Has the agent propose a call and returns its question. */
export async function question(command, more) {
  const before = new Set((await waiting()).map((approval) => approval.id));
  const outcome = propose(command, more);
  const asked = await until('a call asks', async () => (await waiting()).find((approval) => !before.has(approval.id)));
  return { asked, outcome };
}

/** Denies everything that waits. */
export async function clear() {
  for (const { id, digest } of await waiting()) await api('POST', `/api/v1/approvals/${id}/deny`, { body: { digest } });
}

/** A tab that notes what goes wrong in it. */
export async function tab(context) {
  const page = await context.newPage();
  page.noted = { errors: [], violations: [], elsewhere: [] };
  await page.exposeFunction('noteViolation', (about) => page.noted.violations.push(about));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => window.noteViolation(`${event.violatedDirective} ${event.blockedURI}`));
  });
  page.on('console', (message) => message.type() === 'error' && page.noted.errors.push(message.text()));
  page.on('pageerror', (error) => page.noted.errors.push(String(error)));
  page.on('request', (request) => {
    const address = request.url();
    if (!address.startsWith(`${URL_}/`) && !address.startsWith('data:')) page.noted.elsewhere.push(address);
  });
  return page;
}

/** A tab that is signed in to the inbox and live. */
export async function inbox(context) {
  const page = await tab(context);
  await page.goto(await link());
  await live(page);
  return page;
}

/** Waits until the inbox hears from the daemon. */
export async function live(page) {
  await page.locator('#state[data-state="live"]').waitFor();
}

/** The card of a question. */
export function card(page, approval) {
  return page.locator(`.card[id="${approval.id}"]`);
}

function need(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: these scripts are run by tests/tests/browser.rs`);
  return value;
}
