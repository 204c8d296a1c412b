// @ts-check
/**
 * Pairing a device: opens a pairing, shows its codes, and has a person confirm the device that knew one of them.
 *
 * Guarantees: PIN and QR code are on the page while they can be used and the view is in sight, and nowhere else, ever; what the daemon
 * saw of a device and what the device says about itself stand apart, and every text of both goes through `visible.js`; a confirmation
 * carries the digest of the key that was shown, and can be given only while the daemon is heard from; nothing takes the focus but what
 * the person who has it pressed.
 */
import { Refused } from './daemon.js';
import { commandLine, duration, element, exact, part, tell } from './element.js';
import { Form } from './form.js';
import { announce, capital, id, refusal, say } from './page.js';
import { draw, erase } from './qr.js';

/** @typedef {import('./daemon.js').Candidate} Candidate */
/** @typedef {import('./daemon.js').Daemon} Daemon */
/** @typedef {import('./daemon.js').NewPairing} NewPairing */
/** @typedef {import('./daemon.js').OpenPairing} OpenPairing */
/** @typedef {import('./daemon.js').PairingStatus} PairingStatus */
/**
 * Whoever has the session: told that it is over, and that the pairing went on.
 * @typedef {{ over: (why?: string) => void, changed: () => void }} Session
 */

const POLL_MS = 1_000;
/** How many seconds are left when it is said. */
const SAID_AT = [60, 30, 10];
/** How long a device is shown before it can be confirmed, so that a click meant for something else confirms nothing. */
const REST_MS = 500;
/** How long what was heard last is taken for how it is. */
const FRESH_MS = 5_000;
/** What to do next, by how a pairing ended. */
const NEXT = {
  refused: 'The device has been told. If it is not yours, somebody saw the code: look who is around before you open another pairing.',
  ended: 'The codes are worth nothing any more.',
  usedUp: 'If nobody mistyped the code, somebody else can reach the daemon and guesses: find out who before you open another pairing.',
  expired: 'Open another pairing when you have the device at hand: there are two minutes to give it the code.',
  over: 'Look at what the device says, and open another pairing.',
  forgotten: 'Another one was opened since, or the daemon was started anew. If the device is not in the list, open another pairing.',
};

const parts = {
  panel: id('pairing'), title: id('pairing-title'), clocks: id('pairing-clocks'), clock: id('pairing-clock'), guesses: id('pairing-guesses'),
  codes: id('codes'), pin: id('pin'), spoken: id('pin-spoken'), qr: /** @type {SVGSVGElement} */ (/** @type {unknown} */ (id('qr'))),
  join: id('pairing-join'), gone: id('codes-gone'), facts: id('pairing-facts'), candidate: id('candidate'), observed: id('observed'),
  reported: id('reported'), confirm: /** @type {HTMLButtonElement} */ (id('confirm')), refuse: /** @type {HTMLButtonElement} */ (id('refuse')),
  confirmCommand: id('confirm-command'), told: id('pairing-told'), stop: /** @type {HTMLButtonElement} */ (id('pairing-stop')),
  again: id('pairing-again'), line: id('pairing-line'), command: id('pairing-command'),
};

/** The pairing that one session follows, and the form that opens one. */
export class Pairing {
  /**
   * @param {Daemon} daemon
   * @param {Session} session
   */
  constructor(daemon, session) {
    this.daemon = daemon;
    this.session = session;
    /** @type {string | undefined} */
    this.id = undefined;
    /** @type {PairingStatus['state']} */
    this.state = 'waiting';
    /** Whether nothing more comes of it. */
    this.over = false;
    /** The device that is shown. @type {Candidate | undefined} */
    this.shown = undefined;
    this.shownAt = 0;
    this.heardAt = 0;
    this.left = Infinity;
    this.guesses = Infinity;
    /** Whether it was ended here. */
    this.refused = false;
    this.busy = false;
    this.inSight = false;
    /** Whether it is told that the daemon does not answer. */
    this.stale = false;
    this.ended = new AbortController();
    this.form = new Form(daemon, (wanted) => this.open(wanted), this.ended.signal);
    /** @type {[HTMLElement, () => void][]} */
    const presses = [
      [parts.confirm, () => void this.confirm()], [parts.refuse, () => void this.stop()], [parts.stop, () => void this.stop()],
      [parts.again, () => { this.clear(); this.form.focus(); }],
    ];
    for (const [pressed, act] of presses) pressed.addEventListener('click', act, { signal: this.ended.signal });
    this.clear();
  }

  /** Takes that the view has come in sight. */
  arrive() {
    this.inSight = true;
    this.shownAt = performance.now();
    this.lock();
    void this.form.offerRoles();
  }

  /** Takes that the view is not in sight any more. */
  leave() {
    this.inSight = false;
    this.hideCodes();
  }

  /**
   * Opens a pairing, and shows its codes.
   * @param {NewPairing} wanted
   */
  async open(wanted) {
    try {
      this.opened(await this.daemon.openPairing(wanted));
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.session.over();
      this.form.tell(refusal('No pairing was opened', error, 'If it opened one, that one ends by itself after two minutes.'));
    }
  }

  /**
   * SECURITY: whoever knows the PIN or the QR code can ask to be paired. They go from here into the page, and are kept nowhere else.
   * @param {OpenPairing} opened
   */
  opened({ id: about, pin, modules, address, authority, guesses, principal, role }) {
    if (this.ended.signal.aborted) return void this.daemon.endPairing(about).catch(() => undefined);
    if (!this.inSight) return void this.follow(about);
    const focused = this.form.hasFocus();
    // The groups are apart by their look, so that what is copied is the PIN.
    parts.pin.replaceChildren(...(pin.match(/.{1,3}/g) ?? []).map((group) => element('span', {}, group)));
    parts.spoken.textContent = [...pin].join(' ');
    draw(parts.qr, modules);
    parts.codes.hidden = false;
    parts.join.replaceChildren(commandLine(['palyra', 'pair', address]));
    parts.facts.replaceChildren(part('Address', exact(address)), part('Authority', exact(authority)), part('Stands for', exact(principal)),
      part('Role', role ?? 'none'));
    this.begin(about);
    this.tellGuesses(guesses);
    if (focused) parts.title.focus();
    void this.watch(about);
  }

  /**
   * Follows a pairing whose codes were shown before, or elsewhere.
   * @param {string} about
   */
  async follow(about) {
    if (this.id !== undefined) return;
    this.clear();
    this.begin(about);
    this.hideCodes();
    await this.watch(about);
  }

  /** @param {string} about */
  begin(about) {
    this.id = about;
    this.state = 'waiting';
    this.over = false;
    this.left = Infinity;
    this.guesses = Infinity;
    this.refused = false;
    this.heardAt = performance.now();
    parts.title.textContent = 'A pairing is open';
    this.form.hide(true);
    parts.panel.hidden = false;
    parts.command.replaceChildren(commandLine(['palyra', 'devices', 'pairing', about]));
    for (const each of [parts.clocks, parts.stop, parts.line]) each.hidden = false;
    this.session.changed();
  }

  /**
   * Asks each second how the pairing stands, until it is over.
   * @param {string} about
   */
  async watch(about) {
    while (this.id === about && !this.over) {
      try {
        const status = await this.daemon.pairing(about);
        if (this.id === about) this.take(status);
      } catch (error) {
        if (this.id !== about) return;
        if (error instanceof Refused && error.status === 401) return this.session.over();
        if (error instanceof Refused && error.code === 'no_pairing') return this.finish('⊘ Unknown', `The daemon does not know this pairing. ${NEXT.forgotten}`);
        this.unheard(error);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      this.lock();
    }
  }

  /**
   * Takes how the pairing stands.
   * @param {PairingStatus} status
   */
  take(status) {
    if (this.over) return;
    this.heardAt = performance.now();
    if (this.stale) tell(parts.told, '');
    this.stale = false;
    this.tellTime(status.seconds_left);
    this.tellGuesses(status.guesses);
    this.state = status.state;
    if (this.state !== 'waiting') this.hideCodes();
    if (status.device && this.state === 'proved') this.present(status.device);
    switch (status.state) {
      case 'confirmed':
        parts.title.textContent = 'The device is being paired';
        tell(parts.told, 'It is given its certificate now. It is paired once it says that it kept it.');
        break;
      case 'paired':
        return this.finish('✔ Paired', `The device is paired${status.paired === undefined ? '' : ` as ${status.paired}`}, and let in from now on.`);
      case 'over':
        return this.finish(...this.ending(status));
      default:
    }
    this.lock();
  }

  /** @param {number} left */
  tellTime(left) {
    const passed = SAID_AT.filter((seconds) => this.left > seconds && left <= seconds).at(-1);
    if (passed !== undefined && this.left !== Infinity) say(`${passed} seconds are left to pair the device`);
    this.left = left;
    parts.clock.textContent = duration(left * 1000);
  }

  /** @param {number} guesses */
  tellGuesses(guesses) {
    parts.guesses.textContent = `${guesses}`;
    if (guesses < this.guesses && this.guesses !== Infinity) {
      const text = `A code was tried. ${guesses === 1 ? '1 guess is' : `${guesses} guesses are`} left.`;
      tell(parts.told, text);
      say(text);
    }
    this.guesses = guesses;
  }

  /**
   * Shows the device that knew a code.
   * @param {Candidate} device
   */
  present(device) {
    if (this.shown?.observed.key === device.observed.key) return;
    this.shown = device;
    this.shownAt = performance.now();
    parts.title.textContent = 'A device knows the code';
    parts.observed.replaceChildren(part('Address', exact(device.observed.address)), part('Key', exact(device.observed.fingerprint)));
    parts.reported.replaceChildren(part('Name', exact(device.reported.name)), part('System', exact(device.reported.os)));
    parts.confirmCommand.replaceChildren(commandLine(['palyra', 'devices', 'confirm', this.id ?? '', device.observed.fingerprint]));
    parts.candidate.hidden = false;
    // Refusing it is what ends the pairing now.
    if (parts.stop === document.activeElement) parts.title.focus({ preventScroll: true });
    parts.stop.hidden = true;
    tell(parts.told, '');
    announce({ devices: 1 });
    const { observed, reported } = device;
    say(`A device knows the code. It connects from ${observed.address}, and its key is ${observed.fingerprint}. `
      + `It calls itself ${reported.name}, which nobody has checked.`);
  }

  /** Lets a device be confirmed only if it could be read, and is how it stands. */
  lock() {
    const fresh = performance.now() - this.heardAt < FRESH_MS;
    const rested = performance.now() - this.shownAt > REST_MS;
    parts.confirm.disabled = this.busy || !fresh || !rested || this.state !== 'proved';
    for (const each of [parts.refuse, parts.stop]) each.disabled = this.busy;
    if (!rested) setTimeout(() => this.lock(), REST_MS);
  }

  /** Says that this is the device that was meant, with the digest of its key as it was shown. */
  async confirm() {
    const key = this.shown?.observed.key;
    if (key === undefined || parts.confirm.disabled) return;
    await this.ask((about) => this.daemon.confirmPairing(about, key), 'It is not confirmed');
  }

  /** Ends the pairing, or says no to the device that knew the code. */
  async stop() {
    if (this.busy) return;
    this.refused = true;
    await this.ask((about) => this.daemon.endPairing(about), 'It is not ended');
    this.refused = this.over;
  }

  /**
   * @param {(about: string) => Promise<PairingStatus>} what
   * @param {string} otherwise
   */
  async ask(what, otherwise) {
    const about = this.id;
    if (about === undefined || this.busy) return;
    // The buttons may go away, and whoever pressed one hears what comes of it at the top.
    parts.title.focus({ preventScroll: true });
    this.busy = true;
    this.lock();
    try {
      const status = await what(about);
      if (this.id === about) this.take(status);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.session.over();
      tell(parts.told, refusal(otherwise, error, 'How it stands shows as soon as the daemon answers again.'));
    } finally {
      this.busy = false;
      this.lock();
    }
  }

  /** @param {unknown} error */
  unheard(error) {
    if (performance.now() - this.heardAt < FRESH_MS) return;
    this.stale = true;
    tell(parts.told, refusal('How it stands cannot be read', error, 'Nothing can be confirmed until it does.'));
  }

  /**
   * How a pairing ended that paired nothing, and what to do next.
   * @param {PairingStatus} status
   * @returns {[string, string]}
   */
  ending({ why, guesses, seconds_left: left }) {
    const told = `${capital(why ?? 'it ended')}. Nothing was paired.`;
    if (this.refused && this.shown) return ['✖ Refused', `${told} ${NEXT.refused}`];
    if (this.refused) return ['⊘ Ended', `${told} ${NEXT.ended}`];
    if (guesses === 0 && !this.shown) return ['✖ Used up', `${told} ${NEXT.usedUp}`];
    if (left === 0) return ['⧖ Expired', `${told} ${NEXT.expired}`];
    return ['⊘ Over', `${told} ${NEXT.over}`];
  }

  /**
   * Tells what came of the pairing and what to do next.
   * @param {string} title
   * @param {string} text
   */
  finish(title, text) {
    this.over = true;
    this.id = undefined;
    this.hideCodes();
    const focused = parts.panel.contains(document.activeElement);
    parts.title.textContent = title;
    parts.facts.replaceChildren();
    for (const each of [parts.candidate, parts.clocks, parts.stop, parts.line]) each.hidden = true;
    parts.again.hidden = false;
    this.shown = undefined;
    tell(parts.told, text);
    if (focused) parts.title.focus({ preventScroll: true });
    announce({ devices: 0 });
    say(`${title}. ${text}`);
    this.session.changed();
  }

  /** Takes the codes off the page. */
  hideCodes() {
    parts.pin.replaceChildren();
    parts.spoken.replaceChildren();
    erase(parts.qr);
    parts.codes.hidden = true;
    parts.gone.hidden = this.id === undefined || this.state !== 'waiting';
  }

  /** Goes back to the form. */
  clear() {
    this.id = undefined;
    this.shown = undefined;
    this.hideCodes();
    for (const list of [parts.facts, parts.observed, parts.reported, parts.confirmCommand, parts.join]) list.replaceChildren();
    tell(parts.told, '');
    parts.panel.hidden = true;
    parts.candidate.hidden = true;
    parts.again.hidden = true;
    this.form.hide(false);
    announce({ devices: 0 });
  }

  /** Ends the pairing without waiting to be told what came of it. */
  async abandon() {
    if (this.id !== undefined) await this.daemon.endPairing(this.id).catch(() => undefined);
  }

  end() {
    this.ended.abort();
    this.form.reset();
    this.clear();
  }
}
