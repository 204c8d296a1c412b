// @ts-check
/**
 * What the page is made of: elements, text that can be trusted, buttons, times.
 *
 * Guarantees: a string becomes text, never markup; text from outside is shown exactly, with everything hidden in it as a marker.
 */
import { pieces } from './visible.js';

/**
 * An element with attributes and children; a string becomes text.
 * @param {string} name
 * @param {Record<string, string>} attributes
 * @param {(Node | string | undefined)[]} children
 */
export function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const child of children) if (child !== undefined) made.append(child);
  return made;
}

/**
 * Text from outside, exactly: character by character from left to right, each hidden one as a marker.
 * @param {string} text
 */
export function exact(text) {
  return element('code', { class: 'exact', dir: 'ltr' }, ...nodes(text));
}

/**
 * @param {string} text
 * @param {{ block?: boolean }} [how]
 */
export function nodes(text, how) {
  return pieces(text, how).map((piece) => (piece.marker ? element('mark', piece.text.endsWith('<U+000A>') ? { class: 'ends-line' } : {}, piece.text) : piece.text));
}

/**
 * Puts text from outside into an element, instead of what was there.
 * @param {Element} where
 * @param {string} text
 */
export function tell(where, text) {
  where.replaceChildren(...nodes(text));
}

/**
 * @param {string} text
 * @param {string} does
 * @param {() => void} act
 * @param {string} [key]
 */
export function button(text, does, act, key) {
  const hint = key === undefined ? undefined : element('kbd', { 'aria-hidden': 'true' }, key);
  const made = /** @type {HTMLButtonElement} */ (element('button', { type: 'button', 'data-does': does }, text, hint));
  made.addEventListener('click', act);
  return made;
}

/**
 * A name and what belongs to it, for a `dl`.
 * @param {string} name
 * @param {(Node | string | undefined)[]} value
 */
export function part(name, ...value) {
  return element('div', { class: 'part' }, element('dt', {}, name), element('dd', {}, ...value));
}

/**
 * The command that does the same.
 * @param {string[]} words
 */
export function commandLine(words) {
  return element('span', { class: 'cli' }, exact(words.map(quoted).join(' ')));
}

/**
 * A word as a shell takes it.
 * @param {string} word
 */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** @param {number} ms */
export function duration(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  const rest = seconds % 60 === 0 ? '' : ` ${String(seconds % 60).padStart(2, '0')} s`;
  return minutes < 60 ? `${minutes} min${rest}` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/**
 * A moment of the daemon's: the day, and how far it is from now, with the exact time behind it.
 * @param {string} text RFC 3339
 * @param {number} now
 */
export function moment(text, now) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return exact(text);
  const far = distance(Math.abs(at - now));
  const when = far === undefined ? 'now' : at > now ? `in ${far}` : `${far} ago`;
  const stamp = new Date(at).toISOString();
  return element('time', { datetime: stamp, title: stamp }, when, element('span', { class: 'quiet' }, ` ${stamp.slice(0, 10)}`));
}

/**
 * A distance in time, roughly. None if it is less than a minute.
 * @param {number} ms
 */
function distance(ms) {
  const units = /** @type {const} */ ([['day', 86_400_000], ['hour', 3_600_000], ['minute', 60_000]]);
  for (const [name, length] of units) {
    const count = Math.floor(ms / length);
    if (count > 0) return `${count} ${name}${count === 1 ? '' : 's'}`;
  }
  return undefined;
}
