// @ts-check
/**
 * The devices: who is paired, the revocation of one, and the way to pair another one.
 *
 * Guarantees: the list is read anew whenever something happened to a device, and rows stay where they are while it is shown; a refusal
 * is told in the daemon's own words where it happened; nothing that pairs a device is on the page once the view is left.
 */
import { Refused } from './daemon.js';
import { Row } from './device.js';
import { tell } from './element.js';
import { id, refusal, say } from './page.js';
import { Pairing } from './pairing.js';

/** @typedef {import('./daemon.js').Daemon} Daemon */
/** @typedef {import('./daemon.js').Device} Device */
/** @typedef {import('./daemon.js').Event} Event */

/** When a device was last seen changes without an event. */
const AGAIN_MS = 30_000;

const parts = { told: id('devices-told'), paired: id('paired'), revoked: id('revoked'), showRevoked: id('show-revoked') };

/** The devices, as one session sees them. */
export class Devices {
  /**
   * @param {Daemon} daemon
   * @param {(why?: string) => void} over
   */
  constructor(daemon, over) {
    this.daemon = daemon;
    this.over = over;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    this.shown = false;
    /** How many times the list was asked for. */
    this.turn = 0;
    /** @type {number | undefined} */
    this.again = undefined;
    this.pairing = new Pairing(daemon, { over, changed: () => this.changed() });
    this.ended = new AbortController();
    parts.showRevoked.addEventListener('click', () => {
      parts.revoked.hidden = !parts.revoked.hidden;
      this.count();
    }, { signal: this.ended.signal });
  }

  /**
   * Takes that the view is in sight.
   * @param {string | undefined} pairing the pairing that the address names
   */
  show(pairing) {
    if (!this.shown) {
      this.shown = true;
      this.sort();
      void this.read();
      this.pairing.arrive();
    }
    if (pairing !== undefined) void this.pairing.follow(pairing);
    this.address();
  }

  /** Takes that the view is not in sight any more. */
  leave() {
    this.shown = false;
    clearTimeout(this.again);
    this.pairing.leave();
    for (const row of this.rows.values()) row.disarm();
  }

  /** @param {Event} event */
  hear(event) {
    if (this.shown && event.type.startsWith('device.')) void this.read();
  }

  /** Takes that the pairing went on: the address names it as long as it is followed. */
  changed() {
    this.address();
    if (this.shown && this.pairing.over) void this.read();
  }

  address() {
    if (!this.shown) return;
    const address = this.pairing.id === undefined ? '#/devices' : `#/devices/pairings/${this.pairing.id}`;
    if (location.hash !== address) history.replaceState(null, '', `/${address}`);
  }

  /** Reads the list, now and then from now on. */
  async read() {
    clearTimeout(this.again);
    const turn = this.turn += 1;
    try {
      const devices = await this.daemon.devices();
      // What was asked for before is older.
      if (this.shown && turn === this.turn) this.list(devices);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.over();
      tell(parts.told, refusal('The list could not be read', error, 'It is asked for again.'));
    }
    clearTimeout(this.again);
    if (this.shown) this.again = setTimeout(() => void this.read(), AGAIN_MS);
  }

  /** @param {Device[]} devices */
  list(devices) {
    tell(parts.told, '');
    const known = new Set(devices.map((device) => device.id));
    for (const [about, row] of this.rows) {
      if (known.has(about)) continue;
      row.root.remove();
      this.rows.delete(about);
    }
    for (const device of devices) {
      const row = this.rows.get(device.id);
      if (row) row.update(device);
      else this.put(new Row(device, (which) => void this.revoke(which)));
    }
    this.count();
  }

  /** @param {Row} row */
  put(row) {
    this.rows.set(row.device.id, row);
    (row.device.state === 'revoked' ? parts.revoked : parts.paired).append(row.root);
  }

  /** Puts those that were revoked while the view was shown to the others that are. */
  sort() {
    for (const row of this.rows.values()) if (row.device.state === 'revoked') parts.revoked.append(row.root);
    this.count();
  }

  count() {
    const [revoked, open] = [parts.revoked.childElementCount, !parts.revoked.hidden];
    parts.showRevoked.hidden = revoked === 0;
    parts.showRevoked.setAttribute('aria-expanded', `${open}`);
    parts.showRevoked.textContent = open ? 'Hide those that are revoked' : `Show those that are revoked (${revoked})`;
  }

  /** @param {Row} row */
  async revoke(row) {
    row.busy = true;
    row.tell('Revoking…');
    try {
      row.tellRevoked(await this.daemon.revoke(row.device.id));
      if (row.device.this_one) return this.over('The device that this session was opened from is revoked, so the session is over.');
      say(`${row.device.name} is revoked`);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.over();
      row.tell(refusal('It is not revoked', error, 'Whether it is revoked shows as soon as the daemon answers again.'));
    } finally {
      row.busy = false;
    }
    await this.read();
  }

  /** Ends the pairing that is open, if one is, because nobody is left here to confirm it. */
  async abandon() {
    await this.pairing.abandon();
  }

  /** Ends: nothing of this session is left on the page. */
  end() {
    this.leave();
    this.ended.abort();
    this.pairing.end();
    this.rows.clear();
    tell(parts.told, '');
    for (const list of [parts.paired, parts.revoked]) list.replaceChildren();
    parts.revoked.hidden = true;
  }
}
