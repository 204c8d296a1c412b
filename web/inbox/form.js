// @ts-check
/**
 * The form that opens a pairing: whom a device is to stand for, the most that it may do, and what to call it.
 *
 * Guarantees: no role above one's own is offered, and the command that does the same is always shown. Does not: decide. What is asked
 * for goes to the daemon, which refuses what may not be.
 */
import { commandLine, element, tell } from './element.js';
import { id } from './page.js';

/** @typedef {import('./daemon.js').Daemon} Daemon */
/** @typedef {import('./daemon.js').Identity} Identity */
/** @typedef {import('./daemon.js').NewPairing} NewPairing */
/** @typedef {import('./daemon.js').Role} Role */

/** @type {Role[]} From most to least. */
const ROLES = ['owner', 'admin', 'operator'];

const parts = {
  root: /** @type {HTMLFormElement} */ (id('pair-form')), role: /** @type {HTMLSelectElement} */ (id('pair-role')),
  name: /** @type {HTMLInputElement} */ (id('pair-name')), principal: /** @type {HTMLInputElement} */ (id('pair-for')),
  command: id('pair-command'), told: id('pair-told'),
};

/** The form, for one session. */
export class Form {
  /**
   * @param {Daemon} daemon
   * @param {(wanted: NewPairing) => Promise<void>} open
   * @param {AbortSignal} ended
   */
  constructor(daemon, open, ended) {
    this.daemon = daemon;
    this.open = open;
    this.busy = false;
    parts.root.addEventListener('submit', (event) => { event.preventDefault(); void this.submit(); }, { signal: ended });
    parts.root.addEventListener('input', () => this.spell(), { signal: ended });
    this.spell();
  }

  /** Offers the roles that are not above one's own. */
  async offerRoles() {
    /** @type {Identity | undefined} */
    const identity = await this.daemon.get('/api/v1/identity').catch(() => undefined);
    // Without knowing, none is offered, and the daemon decides.
    const highest = ROLES.findIndex((role) => identity?.roles.includes(role));
    const offered = highest < 0 ? [] : ROLES.slice(highest);
    const chosen = parts.role.value;
    parts.role.replaceChildren(element('option', { value: '' }, 'as much as whom it stands for, and no more than you'),
      ...offered.map((role) => element('option', { value: role }, role)));
    parts.role.value = offered.some((role) => role === chosen) ? chosen : '';
    this.spell();
  }

  async submit() {
    if (this.busy) return;
    this.busy = true;
    tell(parts.told, '');
    try {
      await this.open(this.wanted());
    } finally {
      this.busy = false;
    }
  }

  /** What is asked for. @returns {NewPairing} */
  wanted() {
    const [principal, name] = [parts.principal.value.trim(), parts.name.value.trim()];
    const role = parts.role.disabled ? '' : parts.role.value;
    return {
      ...(principal === '' ? {} : { principal }), ...(role === '' ? {} : { role: /** @type {Role} */ (role) }), ...(name === '' ? {} : { name }),
    };
  }

  /** Shows the command that does the same. Only users have a role. */
  spell() {
    parts.role.disabled = /^\s*(agent|service):/.test(parts.principal.value);
    const { principal, role, name } = this.wanted();
    const option = (/** @type {string} */ flag, /** @type {string | undefined} */ value) => (value === undefined ? [] : [flag, value]);
    parts.command.replaceChildren(commandLine(['palyra', 'devices', 'pair', ...option('--role', role), ...option('--for', principal), ...option('--name', name)]));
  }

  /** @param {string} text */
  tell(text) {
    tell(parts.told, text);
  }

  /** @param {boolean} hidden */
  hide(hidden) {
    parts.root.hidden = hidden;
  }

  hasFocus() {
    return parts.root.contains(document.activeElement);
  }

  focus() {
    parts.role.focus();
  }

  /** Forgets what was typed. */
  reset() {
    parts.root.reset();
    tell(parts.told, '');
    this.spell();
  }
}
