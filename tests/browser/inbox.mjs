/** The inbox in a real browser, against a real daemon. */
import { readFile } from 'node:fs/promises';

import { URL_, api, browser, card, check, clear, inbox, link, live, propose, question, require, run, same, tab, until, waiting } from './lab.mjs';
import { load } from './page.mjs';

const { visible } = await load('visible.js');
const context = await browser();
const clean = (page, name) => {
  same(`${name}: no error on the console`, page.noted.errors, []);
  same(`${name}: no violation of the content policy`, page.noted.violations, []);
  same(`${name}: no request leaves the origin`, page.noted.elsewhere, []);
};
const button = (page, asked, does) => card(page, asked).locator(`.answers [data-does="${does}"]`);

async function signingIn() {
  const page = await tab(context);
  const address = await link();
  await page.goto(address);
  await live(page);
  same('the code is taken out of the address', page.url(), `${URL_}/`);
  check('the empty inbox teaches a first call', (await page.locator('#first-call').innerText()).includes('/api/v1/calls'));
  await page.reload();
  await live(page);
  check('a reload keeps the session', await page.locator('#sign-out').isVisible());
  same('no cookie is set', await context.cookies(), []);
  same('nothing is kept beyond the tab', await page.evaluate(() => localStorage.length), 0);

  const late = await tab(context);
  await late.goto(address);
  await late.locator('#signed-out').waitFor();
  const said = await late.locator('#signed-out').innerText();
  check('a link works once, and its second use is told with the command for a new one', said.includes('works once') && said.includes('palyra open'), said);
  same('the code of a used link is taken out of the address, too', late.url(), `${URL_}/`);

  await late.goto(await link());
  await live(late);
  await late.goto(address);
  await late.locator('#notice').waitFor();
  check('a used link does not sign out who is signed in', await late.locator('#sign-out').isVisible());
  const bearer = await late.evaluate(() => JSON.parse(sessionStorage.getItem('palyra.session')).bearer);
  same('a session may read', (await api('GET', '/api/v1/approvals', { bearer })).status, 200);
  await late.locator('#sign-out').click();
  await late.locator('#signed-out').waitFor();
  await until('the daemon ends the session', async () => (await api('GET', '/api/v1/approvals', { bearer })).status === 401);
  same('signing out leaves nothing in the tab', await late.evaluate(() => sessionStorage.length), 0);
  await late.goto((await link()).replace('127.0.0.1', 'localhost'));
  await late.waitForURL(`${URL_}/`);
  await live(late);
  check('a link by a name that others may answer to ends at the address of the daemon', true);
  clean(page, 'signing in');
  await Promise.all([page.close(), late.close()]);
}

async function hostileContent() {
  const page = await inbox(context);
  const hostile = [
    'rm \u202etxt.exe', '<script>window.hacked = 1</script>', '<img src=x onerror="window.hacked = 1">', 'line\nbreak', '\u001b[31mred\u0007',
    '', '  two  blanks ', '<U+202E>', 'zero\u200bwidth', '\u05e9\u05dc\u05d5\u05dd/1/2', `${'x'.repeat(20_000)}END`,
  ];
  const { asked, outcome } = await question(['echo', ...hostile], { args: { env: { COLOUR: '\u202e<b>' } } });
  await card(page, asked).waitFor();
  check('a call that asks appears without a reload', true);
  same('the title says how many wait', await page.title(), '(1) Palyra inbox');
  const chips = await card(page, asked).locator('.chips .exact').evaluateAll((all) => all.map((chip) => chip.textContent));
  same('every argument stands whole, with what is hidden made visible', chips, hostile.map(visible));
  same('a reversed name shows its trick', chips[0], 'rm <U+202E>txt.exe');
  same('nothing of the call became markup or ran', await page.evaluate(() => [window.hacked, document.querySelectorAll('.card script, .card img').length]), [undefined, 0]);
  const text = await card(page, asked).innerText();
  for (const [name, part] of Object.entries({
    tool: 'process.run', 'who asks': asked.principal, workspace: asked.workspace, program: asked.command.program, 'where it starts': asked.command.cwd,
    'a variable': 'COLOUR', 'its value': '<U+202E><b>', writes: asked.plan.writes, risk: asked.risk.level, reason: asked.risk.reasons[0] ?? '',
    policy: asked.policies[0]?.id ?? '', 'its place': asked.policies[0]?.location ?? '', digest: asked.digest,
    'the command line': `palyra approvals approve ${asked.id}`, 'the clock': 'Answer within',
  })) check(`the card shows ${name}`, text.includes(part), part);
  same('and why it asks once', text.split(asked.policies[0]?.why).length - 1, 1);
  const cut = await card(page, asked).evaluate((root) => [...root.querySelectorAll('.whole, .whole *')].filter((each) => {
    const look = getComputedStyle(each);
    return look.textOverflow === 'ellipsis' || look.overflow !== 'visible' || look.webkitLineClamp !== 'none' || look.display === 'none' || look.visibility !== 'visible';
  }).length);
  same('nothing of the card is cut, folded or hidden', cut, 0);
  await page.setViewportSize({ width: 390, height: 800 });
  check('390 pixels are wide enough', await page.evaluate(() => document.scrollingElement.scrollWidth <= innerWidth));
  await page.setViewportSize({ width: 1280, height: 720 });

  await card(page, asked).evaluate((root) => { root.focus({ preventScroll: true }); scrollTo(0, 0); });
  await page.keyboard.press('a');
  check('a key does not answer a card whose end was not in sight', (await card(page, asked).locator('.told').innerText()).includes('Scroll'));
  same('so it waits still', (await waiting()).map((each) => each.id), [asked.id]);
  await button(page, asked, 'approve').click();
  const { status, said } = await outcome;
  same('approving runs it', [status, said.output?.exit_code], [200, 0]);
  same('with exactly what was shown', said.output?.stdout.data, `${hostile.join(' ')}\n`);
  await until('the card tells what came of it', async () => (await card(page, asked).locator('.outcome').innerText()).includes('exit code 0'));
  const told = await card(page, asked).locator('.outcome').innerText();
  check('and by whom', told.includes('Approved by user:'), told);
  same('the title says that nothing waits', await page.title(), 'Palyra inbox');
  clean(page, 'hostile content');
  await page.close();
}

async function denying() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'no']);
  await card(page, asked).focus();
  await until('the card rests', () => button(page, asked, 'deny').isEnabled());
  await page.keyboard.press('Shift+D');
  await page.keyboard.type('use the staging host; a, r and d are letters here');
  same('letters in a text field answer nothing', (await waiting()).map((each) => each.id), [asked.id]);
  same('the buttons name the keys that do the same', [
    await card(page, asked).locator('.form [data-does="deny"] kbd').innerText(), await button(page, asked, 'tell').locator('kbd').innerText(),
  ], ['Ctrl+Enter', 'Shift+D']);
  await page.keyboard.press('Control+Enter');
  const { status, said } = await outcome;
  same('a denial is a refusal by a person', [status, said.error?.code], [403, 'denied_by_person']);
  check('its message reaches the agent', JSON.stringify(said).includes('use the staging host'), said);
  await until('it is told', async () => (await card(page, asked).locator('.outcome').innerText()).includes('Denied by user:'));
  clean(page, 'denying');
  await page.close();
}

async function keys() {
  const page = await inbox(context);
  const first = await question(['echo', 'first']);
  const second = await question(['echo', 'second']);
  await card(page, second.asked).waitFor();
  await until('cards rest', () => button(page, second.asked, 'deny').isEnabled());
  await page.locator('h1').click();
  await page.keyboard.press('a');
  await page.keyboard.press('d');
  same('a key without a focused card answers nothing', (await waiting()).length, 2);
  // While the pointer is on the list, no card is moved, so none has to rest again.
  await page.mouse.move(640, 400);
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const where = () => page.evaluate(() => [document.activeElement?.id, Math.round(document.activeElement?.getBoundingClientRect().top ?? 0), scrollY]);
  const before = await where();
  same('j moves to the next card', before[0], second.asked.id);
  const third = await question(['echo', 'third', 'y'.repeat(5000)]);
  await card(page, third.asked).waitFor();
  same('a new arrival moves neither the focus nor the page', await where(), before);
  await until('the card rests', () => button(page, second.asked, 'approve').isEnabled());
  await page.keyboard.press('a');
  same('a approves the focused card, once', [(await second.outcome).status, (await waiting()).map((each) => each.id)], [200, [first.asked.id, third.asked.id]]);
  await card(page, second.asked).locator('.outcome').waitFor();
  same('an answer moves neither the focus nor the page', await where(), before);
  await page.keyboard.press('a');
  same('a second press answers nobody else', (await waiting()).length, 2);
  await page.keyboard.press('k');
  await until('the card rests', () => button(page, first.asked, 'approve').isEnabled());
  await page.keyboard.press('d');
  same('d denies the focused card', (await first.outcome).said.error?.code, 'denied_by_person');
  await card(page, third.asked).focus();
  await button(page, third.asked, 'approve').scrollIntoViewIfNeeded();
  await until('the card rests', () => button(page, third.asked, 'approve').isEnabled());
  await page.keyboard.press('r');
  same('r approves for the session', (await third.outcome).status, 200);
  same('so the same call does not ask again', (await propose(['echo', 'third', 'y'.repeat(5000)])).status, 200);
  const { grants } = (await api('GET', '/api/v1/grants')).said;
  for (const { id } of grants) await api('DELETE', `/api/v1/grants/${id}`);
  clean(page, 'keys');
  await page.close();
}

async function opening() {
  const first = await question(['echo', 'waits already']);
  const second = await question(['echo', 'waits as well']);
  const page = await inbox(context);
  const focused = () => page.evaluate(() => document.activeElement?.id);
  same('the first card is selected when the page opens', await focused(), first.asked.id);
  await until('the card rests', () => button(page, first.asked, 'approve').isEnabled());
  await card(page, first.asked).evaluate((root) => root.querySelector('.answers').scrollIntoView({ block: 'end' }));
  await page.keyboard.press('a');
  same('so that a key answers it', (await first.outcome).status, 200);

  const folded = (asked) => card(page, asked).evaluate((root) => root.classList.contains('folded'));
  await card(page, second.asked).hover();
  const top = () => card(page, second.asked).evaluate((root) => root.getBoundingClientRect().top + scrollY);
  const before = await top();
  await page.waitForTimeout(3_000);
  same('an answered card keeps its room while the pointer is on the list', [await folded(first.asked), await top()], [false, before]);
  const rests = page.evaluate(([answered, below]) => new Promise((resolve) => {
    const approve = document.getElementById(below).querySelector('[data-does="approve"]');
    new MutationObserver(() => resolve(approve.disabled)).observe(document.getElementById(answered), { attributeFilter: ['class'] });
  }), [first.asked.id, second.asked.id]);
  await page.mouse.move(1, 1);
  await until('an answered card becomes small', () => folded(first.asked));
  check('and cards that moved by it rest', await rests);
  const line = card(page, first.asked);
  check('it is one line', (await line.evaluate((root) => root.getBoundingClientRect().height)) < 50);
  const text = await line.innerText();
  check('which says what came of it and what it was', text.includes('Approved by user:') && text.includes('waits already'), text);
  check('and the rest is behind it', !(await line.locator('.whole').isVisible()));
  await line.locator('summary').click();
  check('one click away', await line.locator('.whole').isVisible());
  await page.keyboard.press('a');
  same('a card that is over takes no key', (await waiting()).map((each) => each.id), [second.asked.id]);
  await clear();
  await second.outcome;
  await until('the last card becomes small wherever the pointer is', () => folded(second.asked));
  same('nothing else was selected meanwhile', await page.evaluate(() => document.activeElement?.closest('.card')?.id), first.asked.id);
  clean(page, 'opening');
  await page.close();
}

async function minutes() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'timeboxed']);
  await card(page, asked).waitFor();
  await card(page, asked).locator('input[type="number"]').fill('7');
  await button(page, asked, 'approve-minutes').click();
  same('approving for minutes runs it', (await outcome).status, 200);
  const { grants } = (await api('GET', '/api/v1/grants')).said;
  const left = (Date.parse(grants[0]?.until) - Date.now()) / 60_000;
  check('and stands for as long', grants.length === 1 && left > 6 && left <= 7, { grants, left });
  for (const { id } of grants) await api('DELETE', `/api/v1/grants/${id}`);
  clean(page, 'minutes');
  await page.close();
}

async function twoBrowsers() {
  const other = await browser();
  const [here, there] = [await inbox(context), await inbox(other)];
  const { asked, outcome } = await question(['echo', 'two']);
  await Promise.all([card(here, asked).waitFor(), card(there, asked).waitFor()]);
  await button(here, asked, 'approve').click();
  await outcome;
  await card(there, asked).locator('.outcome').waitFor();
  const told = await card(there, asked).locator('.outcome').innerText();
  check('one browser sees the answer of the other', told.includes('Approved by user:'), told);
  check('and offers no answer any more', await card(there, asked).locator('.foot').evaluate((foot) => foot.inert));
  clean(here, 'here');
  clean(there, 'there');
  await Promise.all([here.close(), other.close()]);
}

async function firstEvent() {
  const { asked, outcome } = await question(['echo', 'first event']);
  const page = await inbox(context);
  await card(page, asked).waitFor();
  await clear();
  await outcome;
  await card(page, asked).locator('.outcome').waitFor({ timeout: 5_000 });
  check('the very first event after the list is heard', true);
  await page.close();
}

async function late() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'late']);
  await card(page, asked).waitFor();
  // The answer of the page is held up on its way, and somebody else is quicker.
  await page.route('**/approve', async (route) => {
    await api('POST', `/api/v1/approvals/${asked.id}/deny`, { body: { digest: asked.digest } });
    await route.continue();
  });
  await button(page, asked, 'approve').click();
  same('who is late changes nothing', (await outcome).said.error?.code, 'denied_by_person');
  await until('it is told', async () => (await card(page, asked).locator('.told').innerText()).includes('did not count'));
  await card(page, asked).locator('.outcome').waitFor();
  const told = await card(page, asked).innerText();
  check('who is late is told what came of it', told.includes('Denied by user:') && !told.includes('Approved'), told.slice(0, 400));
  await page.unroute('**/approve');

  const withdrawn = await question(['echo', 'withdrawn'], { wait: false });
  const call = (await withdrawn.outcome).said.id;
  await card(page, withdrawn.asked).waitFor();
  await api('DELETE', `/api/v1/calls/${call}`);
  await until('a withdrawn call is told', async () => (await card(page, withdrawn.asked).locator('.outcome').innerText()).includes('Withdrawn'));
  same('nothing waits then', await waiting(), []);
  await page.close();
}

async function lostAnswer() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'lost']);
  await card(page, asked).waitFor();
  await page.route('**/approve', async (route) => {
    await route.fetch();
    await route.abort();
  });
  await button(page, asked, 'approve').click();
  same('an answer whose confirmation is lost counts', (await outcome).status, 200);
  await card(page, asked).locator('.outcome').waitFor();
  check('and is told as what it is', (await card(page, asked).locator('.outcome').innerText()).includes('Approved by user:'));
  await page.close();
}

async function stale() {
  const page = await tab(context);
  const { asked, outcome } = await question(['echo', 'stale']);
  await page.route('**/api/v1/events*', (route) => route.abort());
  await page.goto(await link());
  await card(page, asked).waitFor();
  await page.waitForTimeout(700);
  check('who does not hear from the daemon cannot answer', await button(page, asked, 'approve').isDisabled());
  check('and is told so', (await page.locator('#state').innerText()).includes('nothing can be answered'));
  await card(page, asked).focus();
  await page.keyboard.press('a');
  same('not by a key either', (await waiting()).length, 1);
  await page.unroute('**/api/v1/events*');
  await live(page);
  await button(page, asked, 'approve').click();
  same('once it is heard from again, answers count', (await outcome).status, 200);
  await page.close();
}

async function outOfSight() {
  const page = await tab(context);
  await page.clock.install();
  await page.goto(await link());
  await live(page);
  const sight = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await sight(true);
  await page.clock.fastForward(31_000);
  await until('a tab that nobody looks at gives its connection back', () => page.locator('#state[data-state="stale"]').isVisible());
  const { asked, outcome } = await question(['echo', 'out of sight']);
  await page.clock.fastForward(6_000);
  await until('it hears now and then', async () => (await page.title()) === '(1) Palyra inbox');
  check('and cannot be answered from', await button(page, asked, 'approve').isDisabled());
  await sight(false);
  await live(page);
  await page.clock.fastForward(1_000);
  await button(page, asked, 'approve').click();
  same('until somebody looks again', (await outcome).status, 200);
  await page.close();
}

async function signedOutElsewhere() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'gone']);
  await card(page, asked).waitFor();
  const bearer = await page.evaluate(() => JSON.parse(sessionStorage.getItem('palyra.session')).bearer);
  same('a session can be ended from elsewhere', (await api('DELETE', '/api/v1/console/session', { bearer })).status < 300, true);
  // Nobody clicks: the stream of a session that is over ends, and the page asks again.
  await page.locator('#signed-out').waitFor({ timeout: 8_000 });
  check('whoever is signed out sees no question any more', (await page.locator('.card').count()) === 0 && await page.locator('#signed-out').isVisible());
  same('and the call still waits', (await waiting()).map((each) => each.id), [asked.id]);
  await clear();
  await outcome;
  await page.close();
}

async function accessibility() {
  const source = await readFile(require.resolve('axe-core'), 'utf8');
  const page = await inbox(context);
  const done = await question(['echo', 'done']);
  await card(page, done.asked).waitFor();
  await button(page, done.asked, 'deny').click();
  await done.outcome;
  const { asked, outcome } = await question(['echo', '\u202eaxe', '<b>'], { args: { env: { A: 'b' } } });
  await card(page, asked).waitFor();
  await button(page, asked, 'tell').click();
  await page.evaluate(source);
  const found = [];
  for (const [colorScheme, contrast, width] of [['light', 'no-preference', 1280], ['dark', 'no-preference', 390], ['light', 'more', 1280], ['dark', 'more', 1280]]) {
    await page.emulateMedia({ colorScheme, contrast });
    await page.setViewportSize({ width, height: 800 });
    const { violations } = await page.evaluate(() => window.axe.run());
    found.push(...violations.filter(({ impact }) => impact !== 'minor').map(({ id, nodes }) => `${colorScheme} ${contrast} ${width}: ${id}: ${nodes[0]?.html} ${nodes[0]?.failureSummary}`));
  }
  same('axe finds nothing', found, []);
  await clear();
  await outcome;
  await page.locator('#sign-out').click();
  await page.locator('#signed-out').waitFor();
  const { violations } = await page.evaluate(() => window.axe.run());
  same('nor on the page that asks for a link', violations.map(({ id }) => id), []);
  await page.close();
}

await run([
  clear, signingIn, hostileContent, denying, keys, opening, minutes, twoBrowsers, firstEvent, late, lostAnswer, stale, outOfSight, signedOutElsewhere, accessibility,
]);
