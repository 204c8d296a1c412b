// @ts-check
/**
 * What is on the page around the views: who is signed in, the way to each view, notices, and what is said to those who listen.
 *
 * Guarantees: whatever is told or said goes through `visible.js`; the title and the way to a view tell what waits there, whichever is shown.
 */
import { Refused } from './daemon.js';
import { element, exact } from './element.js';

/** @typedef {'inbox' | 'devices'} View */

export const page = {
  state: id('state'), who: id('who'), views: id('views'), signOut: id('sign-out'), notice: id('notice'), signedOut: id('signed-out'),
  why: id('signed-out-why'), inbox: id('inbox'), waiting: id('waiting'), nothing: id('nothing'), firstCall: id('first-call'),
  recentPart: id('recent-part'), recent: id('recent'), devices: id('devices'), said: id('said'),
};

/** What waits, whether what is shown is how it is, and which view that is. */
const told = { questions: 0, devices: 0, current: true, view: /** @type {View | undefined} */ (undefined) };

/**
 * Takes what has changed, and tells it in the title and on the way to each view.
 * @param {Partial<typeof told>} news
 */
export function announce(news) {
  Object.assign(told, news);
  const { questions, devices, current, view } = told;
  const title = `${current ? '' : '(!) '}${questions + devices > 0 ? `(${questions + devices}) ` : ''}Palyra${view === undefined ? '' : ` ${view}`}`;
  if (document.title !== title) document.title = title;
  mark('inbox', questions === 0 ? '' : `(${questions} ${questions === 1 ? 'waits' : 'wait'})`);
  mark('devices', devices === 0 ? '' : '(a device waits)');
}

/**
 * @param {View} view
 * @param {string} waits
 */
function mark(view, waits) {
  const way = /** @type {HTMLElement} */ (page.views.querySelector(`[data-view="${view}"]`));
  const count = /** @type {HTMLElement} */ (way.querySelector('.count'));
  if (count.textContent !== waits) count.textContent = waits;
  if (told.view === view) way.setAttribute('aria-current', 'page');
  else way.removeAttribute('aria-current');
}

/**
 * Shows a section and no other.
 * @param {HTMLElement} section
 */
export function show(section) {
  for (const each of [page.signedOut, page.inbox, page.devices]) each.hidden = each !== section;
}

/**
 * Tells something on top of the page; nothing takes it away.
 * @param {string} text
 * @param {string} [help]
 */
export function tellPage(text, help) {
  page.notice.hidden = text === '';
  page.notice.replaceChildren(...(text === '' ? [] : [exact(help === undefined ? text : `${text} (${help})`)]));
}

/** @param {string} text */
export function say(text) {
  page.said.replaceChildren(element('p', {}, exact(text)));
}

/**
 * Why something was not done, in the daemon's own words.
 * @param {string} what
 * @param {unknown} error
 * @param {string} unsure what holds if the daemon did not answer, and may have done it
 */
export function refusal(what, error, unsure) {
  if (!(error instanceof Refused)) return `The daemon does not answer. ${unsure}`;
  return `${what}: ${error.message}.${error.help === undefined ? '' : ` ${capital(error.help)}.`}`;
}

/** @param {string} text */
export function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** @param {string} name */
export function id(name) {
  return /** @type {HTMLElement} */ (document.getElementById(name));
}
