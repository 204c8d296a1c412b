// @ts-check
/**
 * A device in the list: who it is, how it stands, and its revocation.
 *
 * Guarantees: every text from outside goes through `visible.js`; a device is revoked by a second press on its own row, made neither at
 * once nor long after the first one. Does not: talk to the daemon.
 */
import { button, commandLine, element, exact, moment, tell } from './element.js';
import { say } from './page.js';
import { visible } from './visible.js';

/** @typedef {import('./daemon.js').Device} Device */
/** @typedef {import('./daemon.js').Revoked} Revoked */

/** How soon after the first press the second one counts, so that a double click revokes nothing, and for how long. */
const REST_MS = 500;
const ARMED_MS = 10_000;

/** State: glyph and word, because colour is never all there is. */
const STATES = { awaiting: '◌ awaiting', active: '● active', cut_off: '○ cut off', revoked: '✖ revoked' };

/** A row of the list. */
export class Row {
  /**
   * @param {Device} device
   * @param {(row: Row) => void} revoke
   */
  constructor(device, revoke) {
    this.device = device;
    this.revoke = revoke;
    this.busy = false;
    this.armedAt = -Infinity;
    /** @type {number | undefined} */
    this.disarming = undefined;
    this.name = cell('Name', 'th');
    this.facts = ['Stands for', 'Role', 'State', 'Last seen', 'Certificate until', 'Fingerprint'].map((label) => cell(label));
    this.press = button('Revoke', 'revoke', () => this.pressed());
    this.keep = button('Keep it', 'keep', () => this.disarm());
    this.warning = element('p', { class: 'warning' });
    this.status = element('p', { class: 'told', role: 'status' });
    this.actions = element('div', { class: 'revocation' }, this.press, this.keep, this.warning,
      element('p', { class: 'quiet' }, commandLine(['palyra', 'devices', 'revoke', device.id])));
    const last = cell('Revoke');
    last.append(this.actions, this.status);
    this.root = element('tr', { role: 'row', 'data-device': device.id }, this.name, ...this.facts, last);
    this.root.addEventListener('keydown', (event) => event.key === 'Escape' && this.disarm());
    this.root.addEventListener('focusout', ({ relatedTarget }) => {
      if (relatedTarget instanceof Node && !this.root.contains(relatedTarget)) this.disarm();
    });
    this.disarm();
    this.update(device);
  }

  /**
   * Takes what the daemon says about this device now.
   * @param {Device} device
   */
  update(device) {
    this.device = device;
    this.root.dataset.state = device.state;
    this.name.replaceChildren(...naming(device));
    const values = [
      [exact(device.principal)], [device.role ?? 'none'], standing(device),
      [device.last_seen === undefined ? 'never' : moment(device.last_seen, Date.now())], validity(device), [exact(device.fingerprint)],
    ];
    for (const [place, value] of values.entries()) this.facts[place].replaceChildren(...value);
    if (device.state !== 'revoked' || this.actions.hidden) return;
    const inside = this.actions.contains(document.activeElement);
    this.disarm();
    this.actions.hidden = true;
    if (inside) this.name.focus({ preventScroll: true });
  }

  /** The first press asks, the second one revokes. */
  pressed() {
    const since = performance.now() - this.armedAt;
    if (this.busy || since < REST_MS) return;
    if (since < ARMED_MS) {
      this.disarm();
      this.revoke(this);
    } else {
      this.arm();
    }
  }

  arm() {
    this.armedAt = performance.now();
    this.disarming = setTimeout(() => this.disarm(), ARMED_MS);
    this.root.classList.add('armed');
    this.call('Really revoke?');
    this.keep.hidden = false;
    this.warning.textContent = `It is cut off at once, with everything that it holds open, and its key never counts again.${
      this.device.this_one ? ' This session was opened from it and ends with it.' : ''}`;
    this.tell('');
    say(`Really revoke ${this.device.name}? ${this.warning.textContent} Press again to revoke it.`);
  }

  disarm() {
    clearTimeout(this.disarming);
    this.armedAt = -Infinity;
    // The button that was pressed goes away, and the focus with it.
    if (this.keep === document.activeElement) this.press.focus({ preventScroll: true });
    this.root.classList.remove('armed');
    this.call('Revoke');
    this.keep.hidden = true;
    this.warning.textContent = '';
  }

  /** @param {string} text what the button says */
  call(text) {
    this.press.textContent = text;
    this.press.setAttribute('aria-label', `${text} ${visible(this.device.name)}`);
  }

  /**
   * Says what was cut off.
   * @param {Revoked} revoked
   */
  tellRevoked({ devices, tokens, calls }) {
    const cut = [
      devices.length > 0 ? `${count(devices.length, 'device')} (${devices.join(', ')})` : '',
      tokens.length > 0 ? `${count(tokens.length, 'token')} (${tokens.join(', ')})` : '',
      calls > 0 ? `${count(calls, 'call')} withdrawn or stopped` : '',
    ].filter((each) => each !== '');
    this.tell(`✖ Revoked. Cut off: ${cut.length === 0 ? 'nothing besides' : cut.join('; ')}.`);
  }

  /** @param {string} text */
  tell(text) {
    tell(this.status, text);
  }
}

/** @param {Device} device */
function naming(device) {
  const said = device.reported;
  return [
    element('strong', {}, exact(device.name)), element('div', { class: 'quiet' }, exact(device.id)),
    device.this_one ? element('div', { class: 'this-one' }, '◆ this session was opened from it') : undefined,
    element('div', { class: 'quiet about' }, 'paired ', moment(device.paired, Date.now()), ' by ', exact(device.paired_by),
      ...(device.observed === undefined ? [] : [', seen at ', exact(device.observed)]),
      ...(said === undefined ? [] : ['; it says that it is ', exact(said.name), ' with ', exact(said.os)])),
  ].filter((each) => each !== undefined);
}

/** @param {Device} device */
function standing({ state, revoked, follows }) {
  const when = revoked === undefined ? [] : [' ', moment(revoked, Date.now())];
  const behind = state === 'active' && !follows ? [element('div', { class: 'warning' }, '▲ does not trust the next authority yet')] : [];
  return [element('span', { class: 'standing', 'data-state': state }, STATES[state] ?? exact(state)), ...when, ...behind];
}

/** @param {Device} device */
function validity({ state, certificate_until: until }) {
  const ran = state !== 'revoked' && Date.parse(until) < Date.now();
  return [...(ran ? [element('span', { class: 'warning' }, '⧖ ran out ')] : []), moment(until, Date.now())];
}

/**
 * @param {string} label
 * @param {'td' | 'th'} [kind]
 */
function cell(label, kind = 'td') {
  return element(kind, { 'data-label': label, ...(kind === 'th' ? { scope: 'row', role: 'rowheader', tabindex: '-1' } : { role: 'cell' }) });
}

/**
 * @param {number} many
 * @param {string} noun
 */
function count(many, noun) {
  return `${many} ${noun}${many === 1 ? '' : 's'}`;
}
