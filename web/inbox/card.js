// @ts-check
/**
 * A question on the page: the whole call, its clocks, its answers, and what came of it.
 *
 * Guarantees: nothing of the call is cut or folded while it can be answered; every text from outside goes through `visible.js` and
 * becomes text, never markup; an answer carries the digest of what this card shows. Does not: talk to the daemon.
 */
import { button, duration, element, exact, nodes, part, tell } from './element.js';

/** @typedef {import('./daemon.js').Approval} Approval */
/** @typedef {import('./daemon.js').Call} Call */
/** @typedef {import('./daemon.js').Command} Command */
/** @typedef {import('./daemon.js').PolicyRef} PolicyRef */
/** @typedef {import('./daemon.js').SkillCall} SkillCall */
/** @typedef {{ kind: 'approve', scope: 'once' | 'session' | 'timeboxed', minutes?: number } | { kind: 'deny', message?: string }} Answer */

/** How long a card rests where it is before its buttons work, so that a click meant for something else does not answer it. */
const REST_MS = 500;

/** Level, glyph and word: colour is never all there is. */
const RISKS = /** @type {Record<string, string>} */ ({ low: '○ low', medium: '◐ medium', high: '▲ high', critical: '◆ critical' });

/** How far a question is. It never goes back. */
const PROGRESS = { pending: 0, approved: 1, consumed: 2, denied: 2, expired: 2, cancelled: 2 };

/** One question. */
export class Card {
  /**
   * @param {Approval} approval
   * @param {(card: Card, answer: Answer) => void} answer
   * @param {(card: Card, pin: string) => void} unlock
   */
  constructor(approval, answer, unlock) {
    this.approval = approval;
    /** @type {Call | undefined} */
    this.call = undefined;
    this.busy = false;
    this.seen = false;
    this.restsUntil = now() + REST_MS;
    this.countsFrom = moments();
    this.answeredAt = 0;
    this.folded = false;
    /** @type {Answer | undefined} */
    this.refusedAnswer = undefined;

    this.title = element('h3', { id: `title-${approval.id}` }, approval.tool, element('span', { class: 'quiet' }, ' asked by '), exact(approval.principal));
    this.outcome = element('span', { class: 'outcome', hidden: '' });
    this.body = element('div', { class: 'whole' }, ...whole(approval));
    this.clock = element('strong', { class: 'clock' });
    this.status = element('p', { class: 'told', role: 'status' });
    this.minutes = /** @type {HTMLInputElement} */ (element('input', { type: 'number', min: '1', max: '1440', value: '15', 'aria-label': 'minutes' }));
    this.message = /** @type {HTMLTextAreaElement} */ (element('textarea', { rows: '2', maxlength: '4096', 'aria-label': 'what the agent is told' }));
    this.pin = /** @type {HTMLInputElement} */ (element('input', { type: 'password', autocomplete: 'off', 'aria-label': 'PIN' }));
    const send = (/** @type {Answer} */ given) => answer(this, given);
    this.once = () => send({ kind: 'approve', scope: 'once' });
    this.forSession = () => send({ kind: 'approve', scope: 'session' });
    this.deny = () => send({ kind: 'deny' });
    const forMinutes = () => send({ kind: 'approve', scope: 'timeboxed', minutes: Math.max(1, Math.trunc(Number(this.minutes.value))) });
    const denyTelling = () => send({ kind: 'deny', message: this.message.value });
    this.telling = element('div', { class: 'form', hidden: '' },
      element('label', {}, 'What the agent is told', this.message),
      button('Deny and tell the agent', 'deny', denyTelling, 'Ctrl+Enter'), button('Back', 'back', () => this.closeForms()));
    this.unlocking = element('div', { class: 'form', hidden: '' },
      element('label', {}, 'The PIN shows that a person is here', this.pin),
      button('Unlock and answer', 'unlock', () => unlock(this, this.pin.value)), button('Back', 'back', () => this.closeForms()));
    this.pin.addEventListener('keydown', (event) => event.key === 'Enter' && unlock(this, this.pin.value));
    this.message.addEventListener('keydown', (event) => event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !this.locked() && denyTelling());
    this.actions = element('div', { class: 'answers', role: 'group', 'aria-label': 'Answers' },
      button('Approve once', 'approve', this.once, 'a'),
      ...(approval.plan.only_once ? [] : [
        button('Approve for this session', 'approve-session', this.forSession, 'r'),
        element('span', { class: 'timebox' }, button('Approve for', 'approve-minutes', forMinutes), this.minutes, ' minutes')]),
      button('Deny', 'deny', this.deny, 'd'),
      button('Deny with a message…', 'tell', () => this.openMessage(), 'Shift+D'));
    this.footer = element('div', { class: 'foot' },
      element('p', {}, 'Answer within ', this.clock, `; then it has ${duration(approval.valid_for_seconds * 1000)} to start. `,
        element('span', { class: 'quiet' }, approval.plan.only_once ? 'It is given the value of a secret, so a yes counts for this call alone.'
          : 'The wider answers cover exactly these arguments, from this agent, in this session.')),
      this.actions, this.telling, this.unlocking,
      element('p', { class: 'quiet cli' }, 'The same on the command line: ', element('code', {}, `palyra approvals approve ${approval.id}`)));
    this.head = element('div', { class: 'head' }, this.title, risk(approval.risk.level));
    this.root = element('article', { class: 'card', id: approval.id, tabindex: '0', 'aria-labelledby': `title-${approval.id}`, 'data-risk': approval.risk.level },
      this.head, this.body,
      element('div', { class: 'end' }, this.footer, this.outcome), this.status);
    this.root.addEventListener('keydown', (event) => event.key === 'Escape' && this.closeForms());
    if (approval.state !== 'pending') this.settle();
  }

  get pending() {
    return this.approval.state === 'pending';
  }

  /**
   * Takes what the daemon says about this question now. What is older than what is shown is dropped.
   * @param {Approval} approval
   */
  update(approval) {
    if (PROGRESS[approval.state] < PROGRESS[this.approval.state]) return;
    // What a question asks never changes. If it did, the digest that was shown must not be sent for something else.
    if (approval.digest !== this.approval.digest) return;
    this.approval = approval;
    this.countsFrom = moments();
    if (!this.pending) this.settle();
  }

  /**
   * Takes what came of the call.
   * @param {Call} call
   */
  learn(call) {
    this.call = call;
    if (!this.pending) this.settle();
  }

  /** Shows what came of it, in place of the answers. */
  settle() {
    this.answeredAt ||= now();
    this.busy = false;
    // The answers keep their room, so that the cards below stay where they are, under the pointer that is on them.
    const inside = this.footer.contains(document.activeElement);
    this.footer.classList.add('gone');
    this.footer.setAttribute('inert', '');
    if (inside) this.root.focus({ preventScroll: true });
    this.root.dataset.state = this.approval.state;
    this.outcome.hidden = false;
    this.outcome.replaceChildren(...outcome(this.approval, this.call));
  }

  /** Makes the card one line, what came of it and what it was; the whole call is behind it. Only for a card that is over. */
  fold() {
    if (this.folded) return;
    this.folded = true;
    this.footer.hidden = true;
    this.root.classList.add('folded');
    const { command, args } = this.approval;
    const words = command ? [command.program, ...command.args] : [JSON.stringify(args)];
    const line = element('summary', {}, this.outcome, ...words.map((word) => exact(word)), this.title);
    this.head.replaceWith(element('details', {}, line, this.body));
    // What was told about an answer that did not count is still to be read.
    if (this.status.childNodes.length === 0) this.status.remove();
  }

  /** Lets the card rest again after it was moved. */
  rest() {
    this.restsUntil = now() + REST_MS;
  }

  /** How long it can still be answered, in milliseconds. */
  left() {
    const [steady, wall] = moments();
    // Of two clocks, the one that counted more: the steady one stops while the machine sleeps, the other one can be set.
    const gone = Math.max(steady - this.countsFrom[0], wall - this.countsFrom[1]);
    return Math.max(0, this.approval.answer_within_ms - gone);
  }

  /** Why no answer can be given now; empty if one can. */
  locked() {
    if (!this.pending) return 'This question is answered.';
    if (this.busy) return 'The answer is on its way.';
    if (this.stale) return 'The connection is lost, so this may be out of date.';
    if (this.left() === 0) return 'The time to answer is over.';
    if (now() < this.restsUntil) return 'This card has just come or moved.';
    return '';
  }

  /**
   * Shows the time that is left and whether answers can be given.
   * @param {boolean} live whether what is shown is how it is
   */
  tick(live) {
    this.stale = !live;
    if (!this.pending) return;
    this.clock.textContent = duration(this.left());
    const locked = this.locked();
    for (const control of this.footer.querySelectorAll('button')) {
      const goesBack = control.dataset.does === 'back';
      if (control.disabled !== (!goesBack && locked !== '')) control.disabled = !goesBack && locked !== '';
    }
    this.root.classList.toggle('stale', this.stale);
  }

  /** Whether the end of the card is, or was, in sight. A key answers only what could be read. */
  wasShown() {
    // What is on a view that is not shown has no place at all.
    const [place] = this.actions.getClientRects();
    this.seen ||= place !== undefined && place.top < innerHeight;
    return this.seen;
  }

  /** @param {string} text */
  tell(text) {
    tell(this.status, text);
  }

  openMessage() {
    this.closeForms();
    this.telling.hidden = false;
    this.message.focus();
  }

  /** @param {Answer} answer the answer that waits for the PIN */
  openPin(answer) {
    this.closeForms();
    this.refusedAnswer = answer;
    this.unlocking.hidden = false;
    this.pin.focus();
  }

  closeForms() {
    const inside = [this.telling, this.unlocking].some((form) => form.contains(document.activeElement));
    this.telling.hidden = true;
    this.unlocking.hidden = true;
    this.pin.value = '';
    if (inside) this.root.focus({ preventScroll: true });
  }
}

/** @param {Approval} approval */
function whole(approval) {
  const { command, plan } = approval;
  const given = unsaid(approval);
  return [element('dl', {},
    ...(command ? process(command, plan.elsewhere === true) : []),
    ...(approval.skill ? skill(approval.skill) : []),
    absent(approval.files) ? undefined : part('Files', json(approval.files)),
    given === undefined ? undefined : part(command ? 'Also given' : 'Arguments', json(given)),
    part('Risk', risk(approval.risk.level), list(approval.risk.reasons, 'reasons')),
    part('Why it asks', ...why(approval)),
    fact('Asked by', exact(approval.principal), ...(absent(approval.on_behalf_of) ? [] : [' for ', exact(approval.on_behalf_of)]),
      approval.waiting === 'accepted' ? ', and can go on without its caller' : ', who waits'),
    fact('Workspace', absent(approval.workspace) ? 'none' : exact(approval.workspace)),
    plan.elsewhere === true
      ? fact('Runs in', 'the agent’s own program, with its own environment: nothing contains it, and nothing bounds it')
      : fact('Runs in', absent(plan.tier) ? 'the daemon itself' : exact(plan.tier), ` for at most ${duration(plan.wall_ms)}`),
    plan.elsewhere === true ? undefined : fact('Network', absent(plan.egress) ? 'none' : exact(plan.egress)),
    fact('May write', exact(plan.writes)),
    fact('Hosts', plan.hosts.length === 0 ? 'none' : list(plan.hosts)),
    fact('Secrets', plan.secrets.length === 0 ? 'none' : list(plan.secrets)),
    fact('Asked at', exact(approval.asked_at)),
    part('Ids', element('span', { class: 'ids' }, 'call ', exact(approval.call), ' run ', exact(approval.run), ' session ', exact(approval.session))),
    part('Digest', exact(approval.digest)))];
}

/**
 * @param {Command} command
 * @param {boolean} elsewhere
 */
function process(command, elsewhere) {
  return [
    part('Program', exact(command.program), ...(absent(command.leads_to) ? [] : [' which leads to ', exact(command.leads_to)])),
    part('Arguments', command.args.length === 0 ? 'none' : list(command.args, 'chips')),
    fact('Starts in', exact(command.cwd)),
    // What the own variables of another program are, nobody here knows: only what it would add is shown.
    elsewhere && Object.keys(command.environment).length === 0 ? undefined : fact('Variables', pairs(command.environment)),
    command.scripts.length === 0 ? undefined : part('Runs as code', list(command.scripts)),
    absent(command.stdin_sha256) ? undefined : part('Reads', 'text with the digest ', exact(command.stdin_sha256)),
  ];
}

/** @param {SkillCall} skill */
function skill(skill) {
  const directories = Object.entries(skill.directories);
  return [
    part('Skill', exact(skill.id), ' ', exact(skill.version), ', its tool ', exact(skill.tool)),
    fact('Signed by', absent(skill.signed_by) ? 'nobody: it is being developed' : exact(skill.signed_by), ' for ', exact(skill.publisher)),
    fact('Directories', directories.length === 0 ? 'none' : element('ol', { class: 'plain' },
      ...directories.map(([name, { path, access }]) => element('li', {}, exact(path), ` to ${access}, as `, exact(name))))),
    part('It may', skill.may.length === 0 ? 'nothing but compute' : list(skill.may, 'reasons')),
    part('At the most', json(skill.limits)),
    part('Package', exact(skill.package_sha256), ' program ', exact(skill.component_sha256)),
  ];
}

/**
 * The arguments as they were given, without those that the command above repeats word for word.
 * @param {Approval} approval
 */
function unsaid({ args, command }) {
  if (!command || typeof args !== 'object' || args === null || Array.isArray(args)) return args;
  const rest = /** @type {Record<string, unknown>} */ ({ ...args });
  const equal = (/** @type {unknown} */ a, /** @type {unknown} */ b) => JSON.stringify(a) === JSON.stringify(b);
  const [name, ...words] = Array.isArray(rest.command) ? rest.command : [];
  // What was asked for by one name and leads to another stays in sight.
  if ((name === command.program || command.program.endsWith(`/${name}`)) && equal(words, command.args)) delete rest.command;
  if (rest.cwd === command.cwd) delete rest.cwd;
  if (rest.env !== undefined && equal(sorted(rest.env), sorted(command.environment))) delete rest.env;
  return Object.keys(rest).length === 0 ? undefined : rest;
}

/** @param {unknown} variables */
function sorted(variables) {
  return Object.entries(/** @type {object} */ (variables ?? {})).sort(([a], [b]) => (a < b ? -1 : 1));
}

/**
 * Why it asks, what each policy behind that says besides, and what would change it.
 * @param {Approval} approval
 */
function why({ reason, change, policies: behind }) {
  return [exact(reason), policies(behind, reason), ...(change ?? []).map((one) => element('p', {}, 'To change it: ', exact(one)))];
}

/**
 * @param {PolicyRef[]} behind
 * @param {string} reason
 */
function policies(behind, reason) {
  return element('ul', { class: 'reasons' }, ...behind.map((policy) => element('li', {}, exact(policy.id), ' at ', exact(policy.location),
    ...(absent(policy.why) || reason.includes(`[${policy.id}]`) ? [] : [': ', exact(policy.why)]))));
}

/**
 * @param {Approval} approval
 * @param {Call | undefined} call
 * @returns {(Node | string)[]}
 */
function outcome({ state, answer, valid_for_seconds }, call) {
  const by = answer?.by === undefined ? [] : [' by ', exact(answer.by)];
  const covers = answer?.covers === undefined ? [] : [', covering ', exact(answer.covers)];
  const cause = answer?.cause === undefined ? [] : [': ', exact(answer.cause)];
  const at = answer === undefined ? [] : [element('span', { class: 'quiet' }, ' at ', answer.at)];
  switch (state) {
    case 'approved':
    case 'consumed':
      return ['✔ Approved', ...by, ...covers, ...at, '.', ...became(call, valid_for_seconds)];
    case 'denied':
      return ['✖ Denied', ...by, ...at, '. Nothing ran.', ...(answer?.message === undefined ? [] : [' The agent was told: ', exact(answer.message)])];
    case 'expired':
      return ['⧖ Expired', ...cause, ...at, '. Nothing ran.'];
    case 'cancelled':
      return ['⊘ Withdrawn', ...cause, ...at, '. Nothing ran.'];
    default:
      return [];
  }
}

/**
 * @param {Call | undefined} call
 * @param {number} validFor
 * @returns {(Node | string)[]}
 */
function became(call, validFor) {
  if (call?.refusal) return [' It did not run: ', exact(call.refusal.message)];
  const told = call?.receipt?.attestation;
  if (told) {
    const code = told.exit_code === undefined || told.exit_code === null ? '' : `, exit code ${told.exit_code}`;
    return [' It ran: ', exact(String(told.ending ?? 'ended')), code, '.'];
  }
  return call?.state === 'started' ? [' It runs.'] : [` It has ${duration(validFor * 1000)} to start.`];
}

/** @param {string} level */
function risk(level) {
  const known = RISKS[level];
  return element('span', { class: 'risk', 'data-risk': known ? level : 'critical' }, known ? `${known} risk` : exact(level));
}

/**
 * A part that is usually short, so that two stand side by side where there is room.
 * @param {string} name
 * @param {(Node | string | undefined)[]} value
 */
function fact(name, ...value) {
  const made = part(name, ...value);
  made.classList.add('fact');
  return made;
}

/**
 * @param {unknown} value
 * @returns {value is undefined | null}
 */
function absent(value) {
  return value === undefined || value === null;
}

/**
 * @param {string[]} items
 * @param {string} [look]
 */
function list(items, look = 'plain') {
  return element('ol', { class: look }, ...items.map((item) => element('li', {}, exact(item))));
}

/** @param {Record<string, string>} variables */
function pairs(variables) {
  const all = Object.entries(variables);
  return all.length === 0 ? 'none besides the fixed ones' : element('ol', { class: 'plain' },
    ...all.map(([name, value]) => element('li', {}, exact(name), '=', exact(value))));
}

/** @param {unknown} value */
function json(value) {
  return element('pre', { class: 'exact' }, ...nodes(JSON.stringify(value, null, 2), { block: true }));
}

const now = () => performance.now();

/** @returns {[number, number]} */
const moments = () => [performance.now(), Date.now()];
