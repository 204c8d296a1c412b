// @ts-check
/**
 * The console: signs in, shows the view that the address names, and leads keys to it.
 *
 * Guarantees: the code of a link is taken out of the address before anything else; what one session showed is gone when it is over; a key
 * that leads to a view, `g` and a letter, answers nothing, however late the letter comes.
 */
import { Daemon, Unreachable } from './daemon.js';
import { Devices } from './devices.js';
import { exact } from './element.js';
import { Inbox } from './inbox.js';
import { announce, page, say, show, tellPage } from './page.js';

/** @typedef {import('./page.js').View} View */

/** Where a view is, by its letter. */
const WAYS = new Map([['i', '#/inbox'], ['d', '#/devices']]);
const PAIRING = /^#\/devices\/pairings\/([0-9A-Z]{26})$/;

/** The views of one session. @type {{ daemon: Daemon, inbox: Inbox, devices: Devices } | undefined} */
let session;
/** @type {View | undefined} */
let view;
/** Whether the next key names a view. */
let leads = false;

/** Begins with the code of the link, else with the session of this tab. */
async function start() {
  // SECURITY: `localhost` is also the name of `::1`, where somebody else may listen on the same port, and would then be of this origin and
  // read its storage. The address of the daemon is nobody else's.
  if (location.hostname === 'localhost') {
    const address = new URL(location.href);
    address.hostname = '127.0.0.1';
    return location.replace(address);
  }
  const code = takeCode();
  if (code !== undefined) {
    try {
      enter(await Daemon.signIn(code));
    } catch (error) {
      const why = error instanceof Unreachable
        ? 'The daemon does not answer, so the link could not be used.'
        : 'This link does not work any more: a link works once, and for a short time.';
      turn({ moved: true });
      if (session) tellPage(why, 'this page stays signed in');
      else if (!resume()) signedOut(why);
      else tellPage(why, 'this page was signed in already and stays so');
    }
  } else if (session) {
    turn({ moved: true });
    session.inbox.select(location.hash.slice(1));
  } else if (!resume()) {
    signedOut('This page opens with a link that works once.');
  }
}

function resume() {
  try {
    const daemon = Daemon.stored();
    if (daemon) enter(daemon);
    return daemon !== undefined;
  } catch {
    Daemon.forget();
    return false;
  }
}

/** @param {Daemon} daemon */
function enter(daemon) {
  end();
  // An answer to a session that is over already says nothing about the one that came after it.
  const over = (/** @type {string | undefined} */ why) => { if (session?.daemon === daemon) signedOut(why); };
  const devices = new Devices(daemon, over);
  const inbox = new Inbox(daemon, { over, heard: (event) => devices.hear(event) });
  session = { daemon, inbox, devices };
  page.who.replaceChildren('as ', exact(daemon.session.principal));
  for (const each of [page.who, page.views, page.signOut]) each.hidden = false;
  turn({ moved: false });
  void inbox.run();
}

/**
 * Shows the view that the address names.
 * @param {{ moved: boolean }} how whether somebody went there from another view, and is to begin at its top
 */
function turn({ moved }) {
  if (!session) return;
  const next = location.hash.startsWith('#/devices') ? 'devices' : 'inbox';
  const same = next === view;
  view = next;
  announce({ view });
  if (next === 'devices') {
    show(page.devices);
    session.devices.show(PAIRING.exec(location.hash)?.[1]);
  } else {
    session.devices.leave();
    show(page.inbox);
    if (!same) session.inbox.shown();
  }
  if (moved && !same) {
    scrollTo(0, 0);
    page[next].querySelector('h2')?.focus({ preventScroll: true });
  }
}

/**
 * The code of a link stands behind the `#`. It is taken out of the address, and so out of the history and out of sight.
 * @returns {string | undefined}
 */
function takeCode() {
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (code === null) return undefined;
  history.replaceState(null, '', '/');
  return code;
}

/** Ends the session on this page: nothing of it is left. */
function end() {
  session?.inbox.end();
  session?.devices.end();
  session = undefined;
  view = undefined;
}

/** @param {string} [why] */
function signedOut(why = 'The session is over: it ran out, was ended, or the daemon was started anew.') {
  Daemon.forget();
  end();
  announce({ questions: 0, devices: 0, current: true, view: undefined });
  page.why.textContent = why;
  page.state.dataset.state = 'out';
  page.state.textContent = '○ signed out';
  for (const each of [page.who, page.views, page.signOut]) each.hidden = true;
  tellPage('');
  show(page.signedOut);
  say(why);
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  const target = /** @type {Element} */ (event.target);
  if (!session || event.ctrlKey || event.metaKey || event.altKey || target.matches('input, textarea, select')) return;
  if (leads && event.key.length === 1) {
    // Whatever the letter is, it belongs to the `g` before it: `g d` on a card must not deny it.
    leads = false;
    location.hash = WAYS.get(event.key) ?? location.hash;
    turn({ moved: true });
    event.preventDefault();
  } else if (event.key === 'g') {
    leads = true;
  } else if (view === 'inbox') {
    session.inbox.pressed(event);
  }
}

page.signOut.addEventListener('click', async () => {
  const daemon = session?.daemon;
  const abandoned = session?.devices.abandon();
  signedOut('You signed out.');
  // Whoever is gone from here is gone; the daemon ends the session by itself if it cannot be told.
  await abandoned;
  await daemon?.signOut().catch(() => undefined);
});
document.addEventListener('keydown', pressed);
// Who goes on with the pointer has left the sentence that `g` began.
document.addEventListener('pointerdown', () => { leads = false; });
document.addEventListener('scroll', () => session?.inbox.scrolled(), { passive: true });
addEventListener('hashchange', () => void start());
// What a browser keeps of a page that it has left must not hold a code.
addEventListener('pagehide', () => session?.devices.leave());
addEventListener('pageshow', ({ persisted }) => persisted && turn({ moved: false }));
document.addEventListener('visibilitychange', () => session?.inbox.look());
addEventListener('online', () => session?.inbox.hurry());
void start();
