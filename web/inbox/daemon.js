// @ts-check
/**
 * What the page says to the daemon and hears from it: the session, requests, and the stream of events.
 *
 * Guarantees: the bearer is kept in `sessionStorage`, which belongs to this origin and this tab alone, and leaves as a header to this
 * origin only; no cookie is sent or kept. What the daemon refuses is an error with the daemon's own words.
 */

const STORED = 'palyra.session';
/** How long an answer may take. */
const PATIENCE_MS = 20_000;
/** The stream says something every 15 seconds. One that is silent for longer is dead, whatever the browser thinks. */
const SILENCE_MS = 35_000;

/**
 * @typedef {{ bearer: string, principal: string, until: string }} Session
 * @typedef {{ id: string, location: string, why?: string }} PolicyRef
 * @typedef {{ program: string, leads_to?: string, args: string[], cwd: string, environment: Record<string, string>,
 *   stdin_sha256?: string, scripts: string[] }} Command
 * @typedef {{ tier?: string, elsewhere?: boolean, egress?: string, writes: string, hosts: string[], only_once?: boolean, secrets: string[], wall_ms: number }} Containment
 * @typedef {{ id: string, version: string, publisher: string, signed_by?: string, tool: string, package_sha256: string, component_sha256: string,
 *   directories: Record<string, { path: string, access: 'read' | 'write' }>, may: string[], limits: Record<string, unknown> }} SkillCall
 * @typedef {'pending' | 'approved' | 'consumed' | 'denied' | 'expired' | 'cancelled'} ApprovalState
 * @typedef {{ id: string, state: ApprovalState, by?: string, covers?: string, message?: string, cause?: string, at: string,
 *   valid_until?: string }} Answered
 * @typedef {{ id: string, call: string, run: string, session: string, principal: string, on_behalf_of?: string, workspace?: string,
 *   tool: string, summary: string, args: unknown, command?: Command, files?: unknown, skill?: SkillCall, plan: Containment,
 *   risk: { level: string, reasons: string[] }, reason: string, change?: string[], policies: PolicyRef[], digest: string, asked_at: string,
 *   answer_by: string, answer_within_ms: number, valid_for_seconds: number, waiting: string, state: ApprovalState,
 *   answer?: Answered }} Approval
 * @typedef {{ seq: number, approvals: Approval[], more: boolean }} Approvals
 * @typedef {{ id: string, state: string, receipt?: { attestation: Record<string, unknown> },
 *   refusal?: { code: string, message: string } }} Call
 * @typedef {'owner' | 'admin' | 'operator'} Role
 * @typedef {{ principal: string, roles: string[], credential: string, device?: string }} Identity
 * @typedef {{ name: string, os: string }} Reported
 * @typedef {{ id: string, name: string, principal: string, role?: Role, state: 'awaiting' | 'active' | 'cut_off' | 'revoked', fingerprint: string,
 *   observed?: string, reported?: Reported, paired: string, paired_by: string, certificate_until: string, last_seen?: string,
 *   revoked?: string, this_one: boolean, follows: boolean }} Device
 * @typedef {{ devices: string[], tokens: string[], calls: number }} Revoked
 * @typedef {{ principal?: string, role?: Role, name?: string }} NewPairing
 * @typedef {{ id: string, pin: string, qr: string, modules: string[], address: string, authority: string, guesses: number, until: string,
 *   principal: string, role?: Role }} OpenPairing
 * @typedef {{ observed: { address: string, fingerprint: string, key: string }, reported: Reported }} Candidate
 * @typedef {{ id: string, state: 'waiting' | 'proved' | 'confirmed' | 'paired' | 'over', guesses: number, until: string,
 *   seconds_left: number, device?: Candidate, why?: string, paired?: string }} PairingStatus
 * @typedef {{ seq: number | null, type: string, call_id: string | null, data: any }} Event
 * @typedef {{ event: string, id: string | undefined, data: string }} Message
 */

/** The daemon said no. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {{ code?: string, message?: string, help?: string }} detail
   */
  constructor(status, detail) {
    super(detail.message ?? `the daemon answered ${status}`);
    this.status = status;
    this.code = detail.code ?? 'unknown';
    this.help = detail.help;
  }
}

/** The daemon said nothing that could be understood. What was asked of it may have been done, or not. */
export class Unreachable extends Error {}

/** The daemon, as one session sees it. */
export class Daemon {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /** The session of this tab, if there is one. */
  static stored() {
    const text = sessionStorage.getItem(STORED);
    return text ? new Daemon(/** @type {Session} */ (JSON.parse(text))) : undefined;
  }

  /**
   * Exchanges the code of a link for a session.
   * @param {string} code
   */
  static async signIn(code) {
    const session = /** @type {Session} */ (await ask('POST', '/api/v1/console/session', { body: { code } }));
    sessionStorage.setItem(STORED, JSON.stringify(session));
    return new Daemon(session);
  }

  /** Forgets the session in this tab. The daemon is told by `signOut`. */
  static forget() {
    sessionStorage.removeItem(STORED);
  }

  /** Ends the session. */
  async signOut() {
    Daemon.forget();
    await ask('DELETE', '/api/v1/console/session', { bearer: this.session.bearer });
  }

  /** @param {string} path */
  get(path) {
    return ask('GET', path, { bearer: this.session.bearer });
  }

  /**
   * @param {string} path
   * @param {unknown} body
   */
  post(path, body) {
    return ask('POST', path, { bearer: this.session.bearer, body });
  }

  /** @param {string} path */
  delete(path) {
    return ask('DELETE', path, { bearer: this.session.bearer });
  }

  /**
   * The questions that wait, all of them, and the journal's record before which they were read.
   * @returns {Promise<Approvals>}
   */
  async approvals() {
    const all = /** @type {Approvals} */ (await this.get('/api/v1/approvals'));
    while (all.more && all.approvals.length > 0) {
      const last = /** @type {Approval} */ (all.approvals.at(-1));
      const next = /** @type {Approvals} */ (await this.get(`/api/v1/approvals?after=${encodeURIComponent(last.id)}`));
      all.approvals.push(...next.approvals);
      all.more = next.more && next.approvals.length > 0;
    }
    return all;
  }

  /**
   * @param {string} id
   * @returns {Promise<Approval>}
   */
  approval(id) {
    return this.get(`/api/v1/approvals/${encodeURIComponent(id)}`);
  }

  /**
   * @param {string} id
   * @returns {Promise<Call>}
   */
  call(id) {
    return this.get(`/api/v1/calls/${encodeURIComponent(id)}`);
  }

  /** @returns {Promise<Device[]>} */
  async devices() {
    return (await this.get('/api/v1/devices')).devices;
  }

  /**
   * @param {string} id
   * @returns {Promise<Revoked>}
   */
  revoke(id) {
    return this.delete(`/api/v1/devices/${encodeURIComponent(id)}`);
  }

  /**
   * @param {NewPairing} pairing
   * @returns {Promise<OpenPairing>}
   */
  openPairing(pairing) {
    return this.post('/api/v1/devices/pairings', pairing);
  }

  /**
   * @param {string} id
   * @returns {Promise<PairingStatus>}
   */
  pairing(id) {
    return this.get(pairingPath(id));
  }

  /**
   * @param {string} id
   * @param {string} key the digest of the key that was shown
   * @returns {Promise<PairingStatus>}
   */
  confirmPairing(id, key) {
    return this.post(`${pairingPath(id)}/confirm`, { key });
  }

  /**
   * Ends a pairing, or says no to the device that knew its code.
   * @param {string} id
   * @returns {Promise<PairingStatus>}
   */
  endPairing(id) {
    return this.delete(pairingPath(id));
  }

  /**
   * The events behind a record, as they happen, until the connection ends or falls silent.
   * @param {{ after: number, lastEventId: string | undefined, signal: AbortSignal, opened: () => void }} from
   * @returns {AsyncGenerator<Message>}
   */
  async *events({ after, lastEventId, signal, opened }) {
    const dead = new AbortController();
    const stop = () => dead.abort();
    signal.addEventListener('abort', stop);
    let timer = setTimeout(stop, SILENCE_MS);
    try {
      /** @type {Record<string, string>} */
      const headers = { accept: 'text/event-stream', authorization: `Bearer ${this.session.bearer}` };
      if (lastEventId !== undefined) headers['last-event-id'] = lastEventId;
      const answer = await send(`/api/v1/events?after=${after}`, { headers, signal: dead.signal });
      if (!answer.ok || !answer.body) throw await refusal(answer);
      opened();
      const parser = new EventParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        yield* parser.push(value);
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
      dead.abort();
    }
  }
}

/** Reads `text/event-stream` piece by piece. */
export class EventParser {
  constructor() {
    this.rest = '';
    this.event = '';
    /** @type {string[]} */
    this.data = [];
    /** @type {string | undefined} */
    this.id = undefined;
  }

  /**
   * Takes the next piece of text and returns the messages that it completes.
   * @param {string} piece
   * @returns {Message[]}
   */
  push(piece) {
    /** @type {Message[]} */
    const messages = [];
    this.rest += piece;
    for (;;) {
      const end = /\r\n|\n|\r(?=[^])/.exec(this.rest);
      if (!end) return messages;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      if (line !== '') this.field(line);
      else if (this.data.length > 0) messages.push(this.take());
      else this.event = '';
    }
  }

  /** @param {string} line */
  field(line) {
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.event = value;
    else if (name === 'data') this.data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.id = value;
  }

  /** @returns {Message} */
  take() {
    const message = { event: this.event || 'message', id: this.id, data: this.data.join('\n') };
    this.event = '';
    this.data = [];
    return message;
  }
}

/** @param {string} id */
function pairingPath(id) {
  return `/api/v1/devices/pairings/${encodeURIComponent(id)}`;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{ bearer?: string, body?: unknown }} what
 * @returns {Promise<any>}
 */
async function ask(method, path, { bearer, body }) {
  /** @type {Record<string, string>} */
  const headers = { accept: 'application/json' };
  if (bearer !== undefined) headers.authorization = `Bearer ${bearer}`;
  if (body !== undefined) headers['content-type'] = 'application/json';
  const sent = body === undefined ? null : JSON.stringify(body);
  const answer = await send(path, { method, headers, body: sent, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw await refusal(answer);
  if (answer.status === 204) return undefined;
  try {
    return await answer.json();
  } catch {
    throw new Unreachable('the answer of the daemon ends too early');
  }
}

/**
 * @param {string} path
 * @param {RequestInit} request
 */
async function send(path, request) {
  try {
    // A redirect could lead elsewhere with the bearer, and the daemon sends none.
    return await fetch(path, { credentials: 'omit', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer', ...request });
  } catch {
    throw new Unreachable('the daemon does not answer');
  }
}

/** @param {Response} answer */
async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  return new Refused(answer.status, body?.error ?? {});
}
