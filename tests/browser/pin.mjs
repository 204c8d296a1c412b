/** Answering where a PIN has to show first that a person is there. `PALYRA_PIN` is the right one. */
import { browser, card, check, inbox, question, run, same, until, waiting } from './lab.mjs';

const context = await browser();

async function unlocking() {
  const page = await inbox(context);
  const { asked, outcome } = await question(['echo', 'locked']);
  await card(page, asked).waitFor();
  await card(page, asked).locator('.answers [data-does="approve"]').click();
  const pin = card(page, asked).locator('input[type="password"]');
  await pin.waitFor();
  same('without a PIN nothing is answered', (await waiting()).map(({ id }) => id), [asked.id]);
  await pin.fill('0000000');
  await pin.press('Enter');
  await until('a wrong PIN is told', async () => /wrong/i.test(await card(page, asked).locator('.told').innerText()));
  same('and answers nothing', (await waiting()).map(({ id }) => id), [asked.id]);
  await pin.fill(process.env.PALYRA_PIN);
  await card(page, asked).locator('[data-does="unlock"]').click();
  same('the right one lets the answer through', (await outcome).status, 200);
  await card(page, asked).locator('.outcome').waitFor();
  same('the PIN does not stay on the page', await pin.inputValue(), '');
  const next = await question(['echo', 'unlocked']);
  await card(page, next.asked).waitFor();
  await card(page, next.asked).locator('.answers [data-does="approve"]').click();
  same('and holds for the session', (await next.outcome).status, 200);
  check('no violation', page.noted.violations.length === 0, page.noted.violations);
  await page.close();
}

await run([unlocking]);
