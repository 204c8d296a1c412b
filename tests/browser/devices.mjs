/**
 * Devices and pairing in a real browser, against a real daemon, with devices that are real `palyra` commands. `PALYRA_COMMAND` is that
 * program.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';

import { URL_, api, browser, card, check, clear, inbox, live, question, require, run, same, until, waiting } from './lab.mjs';

const jsQR = require('jsqr');
const context = await browser();
const homes = [];
const clean = (page, name) => {
  same(`${name}: no error on the console`, page.noted.errors, []);
  same(`${name}: no violation of the content policy`, page.noted.violations, []);
  same(`${name}: no request leaves the origin`, page.noted.elsewhere, []);
};
const listed = async () => (await api('GET', '/api/v1/devices')).said.devices;
const row = (page, device) => page.locator(`tr[data-device="${device.id}"]`);
const press = (page, device, does) => row(page, device).locator(`[data-does="${does}"]`);
const text = (page, id) => page.locator(`#${id}`).innerText();
const heard = (page) => page.locator('#said').innerText();
/** Where the page is. `page.url()` is told of it a little later. */
const place = (page) => page.evaluate(() => location.href);
/** Goes to a view by its link. A click is over before the page has heard where it leads. */
const go = async (page, view) => {
  await page.locator(`#views [data-view="${view}"]`).click();
  await page.locator(`#${view}`).waitFor();
};

/** A tab that is signed in, on the devices. */
async function devices() {
  const page = await inbox(context);
  await go(page, 'devices');
  await page.locator('#paired tr').first().waitFor();
  return page;
}

/** Opens a pairing on the page. Returns what the daemon told it. */
async function openPairing(page, { role, name, whom } = {}) {
  if (await page.locator('#pairing-again').isVisible()) await page.locator('#pairing-again').click();
  await page.locator('#pair-role').selectOption(role ?? '');
  await page.locator('#pair-name').fill(name ?? '');
  await page.locator('#pair-for').fill(whom ?? '');
  const answered = page.waitForResponse((answer) => answer.request().method() === 'POST' && answer.url() === `${URL_}/api/v1/devices/pairings`);
  await page.locator('#pair-open').click();
  const opened = await (await answered).json();
  await page.locator('#codes').waitFor();
  return opened;
}

/** A device that has the code: `palyra pair`, in a state directory of its own. */
async function device({ address, code }) {
  const home = await mkdtemp(join(tmpdir(), 'palyra-device-'));
  homes.push(home);
  const command = (...words) => spawn(process.env.PALYRA_COMMAND, words, { env: { ...process.env, PALYRA_HOME: home }, stdio: ['pipe', 'pipe', 'pipe'] });
  const child = command('pair', ...(address === undefined ? [] : [address]), '--code-file', '-');
  const it = { said: '', ended: undefined, palyra: (...words) => finished(command(...words)) };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { it.said += piece; });
  it.over = finished(child).then(({ exit }) => { it.ended = exit; return exit; });
  child.stdin.end(`${code}\n`);
  return it;
}

/** What a command said, and how it ended. */
function finished(child) {
  return new Promise((resolve, reject) => {
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { said += piece; });
    child.on('error', reject);
    child.on('close', (exit) => resolve({ exit, said }));
  });
}

/** Whether anything of the codes is left on the page. */
async function codesLeft(page, { pin, qr }) {
  return page.evaluate(({ pin, qr }) => {
    const whole = document.documentElement.outerHTML;
    const digits = whole.replace(/\D+/g, ' ');
    return {
      pin: whole.includes(pin) || digits.includes([...pin].join(' ')) || digits.includes(`${pin.slice(0, 3)} ${pin.slice(3)}`),
      text: whole.includes(qr), drawing: document.querySelectorAll('#qr *').length,
    };
  }, { pin, qr });
}
const NOTHING_LEFT = { pin: false, text: false, drawing: 0 };

async function navigation() {
  const page = await inbox(context);
  const current = () => page.locator('#views [aria-current="page"]').getAttribute('data-view');
  same('the inbox is where a link leads', [await current(), await page.title()], ['inbox', 'Palyra inbox']);
  await page.keyboard.press('g');
  await page.keyboard.press('d');
  await page.locator('#devices').waitFor();
  same('g d leads to the devices', [await current(), await page.title(), await place(page)], ['devices', 'Palyra devices', `${URL_}/#/devices`]);
  check('and the inbox is out of sight', !(await page.locator('#inbox').isVisible()));
  same('whoever went there begins at its top', await page.evaluate(() => document.activeElement?.id), 'devices-title');
  await page.reload();
  await live(page);
  check('a reload stays there', await page.locator('#devices').isVisible());

  const { asked, outcome } = await question(['echo', 'elsewhere', 'long '.repeat(4_000)]);
  await until('the way to the inbox tells of a question', async () => (await page.locator('#views [data-view="inbox"] .count').innerText()) === '(1 waits)');
  same('and so does the title', await page.title(), '(1) Palyra devices');
  check('and who listens is told', (await heard(page)).includes('waits for an answer'));
  await page.keyboard.press('a');
  await page.setViewportSize({ width: 1280, height: 300 });
  await page.mouse.move(640, 200);
  await page.mouse.wheel(0, 200);
  await until('the devices are scrolled', () => page.evaluate(() => scrollY > 0));
  same('nothing is answered from there', (await waiting()).map(({ id }) => id), [asked.id]);
  await page.setViewportSize({ width: 1280, height: 720 });
  await page.waitForTimeout(700);
  await page.keyboard.press('g');
  await page.keyboard.press('i');
  await card(page, asked).waitFor();
  same('g i leads back', await place(page), `${URL_}/#/inbox`);
  check('where cards that come in sight rest', await card(page, asked).locator('[data-does="approve"]').isDisabled());

  await until('the card rests', () => card(page, asked).locator('[data-does="deny"]').first().isEnabled());
  await card(page, asked).evaluate((root) => { root.focus({ preventScroll: true }); scrollTo(0, 0); });
  await page.keyboard.press('a');
  check('and what was scrolled past elsewhere was not read here', (await card(page, asked).locator('.told').innerText()).includes('Scroll'));
  await card(page, asked).evaluate((root) => root.querySelector('.answers').scrollIntoView({ block: 'end' }));
  await page.keyboard.press('g');
  await page.waitForTimeout(1_500);
  await page.keyboard.press('d');
  await page.locator('#devices').waitFor();
  same('g d on a card denies nothing, however late the letter comes', (await waiting()).map(({ id }) => id), [asked.id]);
  await page.goto(`${URL_}/#${asked.id}`);
  await card(page, asked).waitFor();
  same('a link to a question leads to it from there', await page.evaluate(() => document.activeElement?.id), asked.id);
  await clear();
  await outcome;
  clean(page, 'navigation');
  await page.close();
}

async function list() {
  const page = await devices();
  const [mine] = await listed();
  const told = await row(page, mine).innerText();
  for (const [name, part] of Object.entries({
    name: mine.name, id: mine.id, 'whom it stands for': mine.principal, role: mine.role, state: '● active', fingerprint: mine.fingerprint,
    'until when its certificate is valid': mine.certificate_until.slice(0, 10), mark: 'this session was opened from it',
    command: `palyra devices revoke ${mine.id}`,
  })) check(`a device is listed with its ${name}`, told.replaceAll('\n', '').includes(part) || told.includes(part), { part, told });
  same('the list is a table for those who listen', await page.getByRole('table').getByRole('row').count(), 1 + (await listed()).length);
  check('the list has its command', (await text(page, 'devices')).includes('palyra devices list'));
  await page.setViewportSize({ width: 390, height: 800 });
  check('390 pixels are wide enough', await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth));
  const before = await row(page, mine).locator('td').first().evaluate((cell) => getComputedStyle(cell, '::before').content);
  check('where each cell says what it is', before.includes('Stands for'), before);
  await page.setViewportSize({ width: 1280, height: 720 });

  await page.locator('#pair-name').fill("Ada's phone");
  await page.locator('#pair-role').selectOption('operator');
  same('the form shows its command', await text(page, 'pair-command'), "palyra devices pair --role operator --name 'Ada'\\''s phone'");
  await page.locator('#pair-for').fill('agent:helper');
  same('an agent has no role', await text(page, 'pair-command'), "palyra devices pair --for agent:helper --name 'Ada'\\''s phone'");
  const roles = async () => (await page.locator('#pair-role option').allInnerTexts()).join();
  same('an owner may give every role', await roles(), 'as much as whom it stands for, and no more than you,owner,admin,operator');
  await page.route('**/api/v1/identity', async (route) => route.fulfill({ json: { principal: 'user:ada', roles: ['admin'], credential: 'console' } }));
  await page.reload();
  await until('others may give no role above their own', async () => (await roles()).endsWith('than you,admin,operator'));
  clean(page, 'list');
  await page.close();
}

async function codes() {
  const page = await devices();
  await page.emulateMedia({ colorScheme: 'dark' });
  const opened = await openPairing(page, { role: 'operator', name: 'phone' });
  same('the PIN stands there in two groups', await page.locator('#pin span').allInnerTexts(), [opened.pin.slice(0, 3), opened.pin.slice(3)]);
  same('and is the one of the daemon', await page.locator('#pin').textContent(), opened.pin);
  same('its digits are read one by one', await page.locator('#pin-spoken').textContent(), [...opened.pin].join(' '));
  const told = await text(page, 'pairing');
  const commands = [`palyra pair ${opened.address}`, `palyra devices pairing ${opened.id}`];
  for (const part of [opened.address, opened.authority, opened.principal, 'operator', 'Guesses left: 3', ...commands]) {
    check(`the pairing shows ${part}`, told.includes(part), told);
  }
  check('and the time that is left', /Time left: (2 min|1 min \d\d s)/.test(told), told);
  same('the QR code is drawn as the daemon made it', await modulesOf(page), opened.modules);
  const drawing = page.locator('#qr');
  same('as an image with a name', [await drawing.getAttribute('role'), await drawing.getAttribute('aria-label')], ['img', 'QR code that pairs a device']);
  for (const [colorScheme, contrast] of [['dark', 'no-preference'], ['light', 'no-preference'], ['dark', 'more']]) {
    await page.emulateMedia({ colorScheme, contrast });
    same(`a reader reads it (${colorScheme}, ${contrast})`, await decoded(await drawing.screenshot()), opened.qr);
  }
  same('the address names the pairing', await place(page), `${URL_}/#/devices/pairings/${opened.id}`);

  same('the codes are on the page', await codesLeft(page, opened), { pin: true, text: false, drawing: 2 });
  await go(page, 'inbox');
  same('nothing of the codes is left when the view is', await codesLeft(page, opened), NOTHING_LEFT);
  await go(page, 'devices');
  check('nor do they come back', !(await page.locator('#codes').isVisible()) && await page.locator('#codes-gone').isVisible());
  same('the pairing is still followed', await place(page), `${URL_}/#/devices/pairings/${opened.id}`);
  await page.reload();
  await page.locator('#codes-gone').waitFor();
  await until('even after a reload', async () => (await text(page, 'pairing-clock')) !== '');
  same('which brings no code back', await codesLeft(page, opened), NOTHING_LEFT);
  await page.locator('#pairing-stop').click();
  await until('it can be ended', async () => (await text(page, 'pairing-title')) === '⊘ Ended');
  same('the daemon says so, too', (await api('GET', `/api/v1/devices/pairings/${opened.id}`)).said.state, 'over');
  check('and what came of it is told', (await text(page, 'pairing-told')).includes('Nothing was paired.'));
  same('the address names it no more', await place(page), `${URL_}/#/devices`);

  const next = await openPairing(page);
  await page.locator('#sign-out').click();
  await page.locator('#signed-out').waitFor();
  same('signing out leaves no code', await codesLeft(page, next), NOTHING_LEFT);
  await until('and ends the pairing', async () => (await api('GET', `/api/v1/devices/pairings/${next.id}`)).said.state === 'over');
  clean(page, 'codes');
  await page.close();
}

/** The QR code on the page, as rows of modules. */
async function modulesOf(page) {
  return page.locator('#qr').evaluate((svg) => {
    const margin = 4;
    const side = svg.viewBox.baseVal.width - 2 * margin;
    const path = svg.querySelector('path');
    const dark = (x, y) => path.isPointInFill(new DOMPoint(x + margin + 0.5, y + margin + 0.5));
    return Array.from({ length: side }, (_, y) => Array.from({ length: side }, (_, x) => (dark(x, y) ? '1' : '0')).join(''));
  });
}

/** What a reader of QR codes finds in a picture. */
async function decoded(png) {
  const page = await context.newPage();
  const { width, height, bytes } = await page.evaluate(async (base64) => {
    const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${base64}`)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const surface = canvas.getContext('2d');
    surface.drawImage(image, 0, 0);
    return { width: image.width, height: image.height, bytes: [...surface.getImageData(0, 0, image.width, image.height).data] };
  }, png.toString('base64'));
  await page.close();
  return jsQR(Uint8ClampedArray.from(bytes), width, height)?.data;
}

async function confirming() {
  const page = await devices();
  const before = (await listed()).length;
  const opened = await openPairing(page, { role: 'operator', name: 'from a PIN' });
  await page.locator('#devices-title').focus();
  const focused = () => page.evaluate(() => document.activeElement?.id);
  const rests = page.evaluate(() => new Promise((resolve) => {
    const candidate = document.getElementById('candidate');
    new MutationObserver(() => resolve(document.getElementById('confirm').disabled)).observe(candidate, { attributeFilter: ['hidden'] });
  }));
  const it = await device({ address: opened.address, code: opened.pin });
  await page.locator('#candidate').waitFor();
  check('a device that has just come in sight cannot be confirmed yet', await rests);
  same('a device that knows the code takes nobody’s focus', await focused(), 'devices-title');
  same('its codes are gone at once', await codesLeft(page, opened), NOTHING_LEFT);
  const { device: seen } = (await api('GET', `/api/v1/devices/pairings/${opened.id}`)).said;
  same('what was observed stands in a box of its own', await page.locator('#observed dd').allInnerTexts(), [seen.observed.address, seen.observed.fingerprint]);
  same('what is reported in another one', await page.locator('#reported dd').allInnerTexts(), [seen.reported.name, seen.reported.os]);
  same('which says that nobody has checked it', await page.locator('.source.reported p').innerText(), 'It says this about itself; nobody has checked it.');
  same('as the device said it', seen.reported.name, hostname());
  await until('the device shows the same key', () => it.said.includes(seen.observed.fingerprint));
  check('the way to the devices tells of it', (await text(page, 'views')).includes('a device waits') && (await page.title()) === '(1) Palyra devices');
  check('and who listens is told', (await heard(page)).includes(seen.observed.fingerprint));
  check('with its command', (await text(page, 'candidate')).includes(`palyra devices confirm ${opened.id} ${seen.observed.fingerprint}`));
  same('nothing is paired before it is confirmed', (await listed()).length, before);
  const sent = page.waitForRequest((request) => request.url().endsWith('/confirm'));
  await page.locator('#confirm').click();
  same('confirming repeats the digest of the key', (await sent).postDataJSON(), { key: seen.observed.key });
  same('the device is paired', await it.over, 0);
  await until('which is told', async () => (await text(page, 'pairing-title')) === '✔ Paired');
  same('to whoever pressed the button', await focused(), 'pairing-title');
  const paired = (await listed()).at(-1);
  same('as it was asked for', [paired.name, paired.role, paired.state, paired.fingerprint], ['from a PIN', 'operator', 'active', seen.observed.fingerprint]);
  await row(page, paired).waitFor();
  check('and it is in the list', (await row(page, paired).innerText()).includes('from a PIN'));
  check('the title tells of nothing any more', (await page.title()) === 'Palyra devices');
  same('the device is let in', (await it.palyra('whoami')).exit, 0);

  const scanned = await openPairing(page, { name: 'from a QR code' });
  const other = await device({ code: scanned.qr });
  await page.locator('#candidate').waitFor();
  await page.locator('#confirm').click();
  same('a device that scanned the code is paired as well', await other.over, 0);
  clean(page, 'confirming');
  await page.close();
}

async function refusing() {
  const page = await devices();
  const before = (await listed()).map(({ id }) => id);
  const opened = await openPairing(page);
  const it = await device({ address: opened.address, code: opened.pin });
  await page.locator('#candidate').waitFor();
  await page.locator('#refuse').click();
  await until('a device can be refused', async () => (await text(page, 'pairing-title')) === '✖ Refused');
  check('which the device is told', (await it.over) !== 0, it.said);
  check('and what to think of it', (await text(page, 'pairing-told')).includes('somebody saw the code'));
  same('nothing was paired', (await listed()).map(({ id }) => id), before);

  const guessed = await openPairing(page);
  const wrong = `${(Number(guessed.pin) + 1) % 1_000_000}`.padStart(6, '0');
  for (const left of ['2', '1']) {
    const guesser = await device({ address: guessed.address, code: wrong });
    check('a wrong code pairs nothing', (await guesser.over) !== 0);
    await until('and takes a guess', async () => (await text(page, 'pairing-guesses')) === left);
    check('which is told', (await heard(page)).includes(`${left} guess`));
  }
  const last = await device({ address: guessed.address, code: wrong });
  await last.over;
  await until('all guesses used up end it', async () => (await text(page, 'pairing-title')) === '✖ Used up');
  check('with what to do next', (await text(page, 'pairing-told')).includes('find out who'));
  same('and no code is left', await codesLeft(page, guessed), NOTHING_LEFT);
  clean(page, 'refusing');
  await page.close();
}

async function runningOut() {
  const page = await devices();
  const opened = await openPairing(page);
  let left = 61;
  let state = {};
  await page.route(`**/api/v1/devices/pairings/${opened.id}`, async (route) => {
    if (route.request().method() !== 'GET') return route.continue();
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), seconds_left: left, ...state } });
  });
  for (const [seconds, shown] of [[61, '1 min 01 s'], [60, '1 min'], [30, '30 s'], [9, '9 s']]) {
    left = seconds;
    await until('the time is counted down', async () => (await text(page, 'pairing-clock')) === shown);
    if (seconds <= 60) same('and said', await heard(page), `${seconds === 9 ? 10 : seconds} seconds are left to pair the device`);
  }
  Object.assign(state, { state: 'over', why: 'its time was over' });
  left = 0;
  await until('a pairing that ran out is told', async () => (await text(page, 'pairing-title')) === '⧖ Expired');
  check('with what to do next', (await text(page, 'pairing-told')).includes('Open another pairing'));
  same('and no code is left', await codesLeft(page, opened), NOTHING_LEFT);
  await page.unroute(`**/api/v1/devices/pairings/${opened.id}`);

  await page.locator('#pairing-again').click();
  await page.locator('#pair-open').click();
  await until('a second pairing beside an open one is refused', async () => (await text(page, 'pair-told')).includes(`No pairing was opened: the pairing ${opened.id} is open`));
  await api('DELETE', `/api/v1/devices/pairings/${opened.id}`);
  clean({ noted: { ...page.noted, errors: page.noted.errors.filter((error) => !error.includes('409')) } }, 'running out');
  await page.close();
}

async function unheard() {
  const page = await devices();
  const opened = await openPairing(page);
  const it = await device({ address: opened.address, code: opened.pin });
  await until('a device is shown', () => page.locator('#confirm').isEnabled());
  await page.route('**/api/v1/devices/pairings/**', (route) => route.abort());
  await until('who does not hear from the daemon cannot confirm', () => page.locator('#confirm').isDisabled(), 15_000);
  await until('and is told so', async () => (await text(page, 'pairing-told')).includes('Nothing can be confirmed until it does'), 15_000);
  await page.unroute('**/api/v1/devices/pairings/**');
  await until('until it is heard from again', () => page.locator('#confirm').isEnabled());
  await page.locator('#refuse').click();
  await it.over;
  await page.close();
}

async function revoking() {
  const page = await devices();
  const lost = (await listed()).find(({ name }) => name === 'from a PIN');
  const state = async () => (await listed()).find(({ id }) => id === lost.id).state;
  const revoke = press(page, lost, 'revoke');
  await revoke.dblclick();
  same('the first press asks, and a double click is one press', [await revoke.innerText(), await state()], ['Really revoke?', 'active']);
  check('and tells what it would do', (await row(page, lost).innerText()).includes('its key never counts again'));
  await press(page, lost, 'keep').click();
  same('it can be kept', await revoke.innerText(), 'Revoke');
  await revoke.click();
  await page.keyboard.press('Escape');
  same('also by a key', await revoke.innerText(), 'Revoke');
  await revoke.click();
  await page.locator('#pair-name').focus();
  same('and by going elsewhere', [await revoke.innerText(), await state()], ['Revoke', 'active']);
  await revoke.click();
  await page.waitForTimeout(600);
  await revoke.click();
  await until('a second press revokes it', async () => (await state()) === 'revoked');
  await until('and says what was cut off', async () => (await row(page, lost).locator('.told').innerText()).startsWith('✖ Revoked. Cut off: 1 device'));
  await until('where the row is', async () => (await row(page, lost).innerText()).includes('✖ revoked'));
  await until('it cannot be revoked twice', async () => !(await revoke.isVisible()));
  await page.keyboard.press('g');
  await page.keyboard.press('i');
  await page.keyboard.press('g');
  await page.keyboard.press('d');
  await until('it is put away later', async () => !(await row(page, lost).isVisible()));
  await page.locator('#show-revoked').click();
  await until('where it can be found', () => row(page, lost).isVisible());

  const mine = (await listed()).find(({ this_one: own }) => own);
  await press(page, mine, 'revoke').click();
  await until('of its own device, the page says that the session ends with it', async () => (await row(page, mine).innerText()).includes('ends with it'));
  clean(page, 'revoking');

  // A device of one's own, in whose name another page is opened, is revoked from that page.
  const opened = await openPairing(page, { name: 'second' });
  const second = await device({ address: opened.address, code: opened.pin });
  await until('a device is shown', () => page.locator('#confirm').isEnabled());
  await page.locator('#confirm').click();
  await second.over;
  const link = (await second.palyra('open')).said.split('\n').find((line) => line.startsWith('http'));
  const there = await context.newPage();
  await there.goto(link);
  await live(there);
  await there.goto(`${URL_}/#/devices`);
  const own = (await listed()).at(-1);
  await press(there, own, 'revoke').click();
  await there.waitForTimeout(600);
  await press(there, own, 'revoke').click();
  await there.locator('#signed-out').waitFor();
  check('whoever revokes the device that opened the page is signed out', (await text(there, 'signed-out-why')).length > 0);
  same('and nothing of the list is left', await there.locator('tr[data-device]').count(), 0);
  await there.close();

  await until('only the last device is left', async () => {
    const others = (await listed()).filter(({ this_one: me, state: now }) => !me && now === 'active');
    for (const { id } of others) await api('DELETE', `/api/v1/devices/${id}`);
    return (await listed()).filter(({ state: now }) => now === 'active').length === 1;
  });
  await page.reload();
  await press(page, mine, 'revoke').click();
  await page.waitForTimeout(600);
  await press(page, mine, 'revoke').click();
  await until('the last one is not revoked by accident', async () => (await row(page, mine).locator('.told').innerText()).startsWith('It is not revoked: '));
  await page.close();
}

async function hostileNames() {
  const page = await inbox(context);
  const name = 'Ada\u202e\u0000s \u200bphone\n<img src=x onerror="window.hacked = 1"><U+202E>';
  const shown = 'Ada<U+202E><U+0000>s <U+200B>phone<U+000A><img src=x onerror="window.hacked = 1"><U+003C>U+202E>';
  await page.route('**/api/v1/devices', async (route) => {
    const answer = await route.fetch();
    const { devices: all } = await answer.json();
    await route.fulfill({ response: answer, json: { devices: all.map((one) => ({ ...one, name, observed: name, paired_by: name, reported: { name, os: name } })) } });
  });
  await go(page, 'devices');
  const [mine] = await listed();
  await row(page, mine).waitFor();
  same('a name shows its tricks', await row(page, mine).locator('strong').textContent(), shown);
  same('wherever it stands', (await row(page, mine).locator('th').textContent()).split(shown).length - 1, 5);
  same('also for those who listen', await press(page, mine, 'revoke').getAttribute('aria-label'), `Revoke ${shown}`);

  const opened = await openPairing(page);
  const key = 'ab'.repeat(32);
  await page.route(`**/api/v1/devices/pairings/${opened.id}`, async (route) => {
    const answer = await route.fetch();
    const device_ = { observed: { address: name, fingerprint: name, key }, reported: { name, os: name } };
    await route.fulfill({ response: answer, json: { ...(await answer.json()), state: 'proved', device: device_ } });
  });
  await page.locator('#candidate').waitFor();
  for (const part of ['observed', 'reported']) {
    same(`what is ${part} shows its tricks`, await page.locator(`#${part} dd`).evaluateAll((all) => all.map((each) => each.textContent)), [shown, shown]);
  }
  same('nothing of it became markup or ran', await page.evaluate(() => [window.hacked, document.querySelectorAll('#devices img').length]), [undefined, 0]);
  await page.unroute(`**/api/v1/devices/pairings/${opened.id}`);
  await page.locator('#refuse').click();
  await until('it is over', async () => (await text(page, 'pairing-title')).startsWith('✖'));
  clean(page, 'hostile names');
  await page.close();
}

async function accessibility() {
  const source = await readFile(require.resolve('axe-core'), 'utf8');
  const page = await devices();
  await page.evaluate(source);
  const found = [];
  const looks = [['light', 'no-preference', 1280], ['dark', 'no-preference', 390], ['light', 'more', 1280], ['dark', 'more', 390]];
  const look = async (what) => {
    for (const [colorScheme, contrast, width] of looks) {
      await page.emulateMedia({ colorScheme, contrast });
      await page.setViewportSize({ width, height: 800 });
      const { violations } = await page.evaluate(() => window.axe.run());
      const bad = violations.filter(({ impact }) => impact !== 'minor');
      found.push(...bad.map(({ id, nodes: [first] }) => `${what} ${colorScheme} ${contrast} ${width}: ${id}: ${first?.html} ${first?.failureSummary}`));
      if (await page.evaluate(() => document.scrollingElement.scrollWidth > innerWidth)) found.push(`${what} is wider than ${width} pixels`);
    }
  };
  const [mine] = await listed();
  await press(page, mine, 'revoke').click();
  await look('the list');
  const opened = await openPairing(page, { name: 'axe' });
  await look('the codes');
  const it = await device({ address: opened.address, code: opened.pin });
  await page.locator('#candidate').waitFor();
  await look('the device');
  await page.locator('#refuse').click();
  await it.over;
  await until('it is over', async () => (await text(page, 'pairing-title')).startsWith('✖'));
  await look('the end');
  same('axe finds nothing', found, []);
  await page.close();
}

async function tidying() {
  for (const home of homes) await rm(home, { recursive: true, force: true });
}

await run([clear, navigation, list, codes, confirming, refusing, runningOut, unheard, hostileNames, accessibility, revoking, tidying]);
