// @ts-check
/**
 * The inbox: keeps the questions that wait in view as they come and go, and carries answers to the daemon.
 *
 * Guarantees: a new question is put behind the others and moves neither focus nor what is in sight; a key answers only the card that
 * has the focus, which is the first one when the page opens and then whichever a person chose; nothing can be answered while the page
 * does not hear from the daemon; what the daemon says to an answer is told as it is. It follows while another view is shown, too.
 */
import { Card } from './card.js';
import { Refused } from './daemon.js';
import { announce, capital, page, say, tellPage } from './page.js';

/** @typedef {import('./card.js').Answer} Answer */
/** @typedef {import('./daemon.js').Approval} Approval */
/** @typedef {import('./daemon.js').Daemon} Daemon */
/** @typedef {import('./daemon.js').Event} Event */

/** How long an answered card stays as it was, how long where it was, how long it is listed then, and how many are. */
const FOLDS_MS = 2_000;
const LINGERS_MS = 20_000;
const LISTED_MS = 15 * 60_000;
const LISTED = 20;
const LONGEST_PAUSE_MS = 5_000;
/** A browser opens six connections to a server, and a stream keeps one. A tab that nobody has looked at for this long asks now and then. */
const AWAY_AFTER_MS = 30_000;
const AWAY_PAUSE_MS = 5_000;
/** What may tell how a call goes on that was answered here. */
const PROGRESS = new Set(['tool.started', 'tool.attested', 'tool.decided']);

/**
 * Whoever has the session: told that it is over, and of everything that happens.
 * @typedef {{ over: (why?: string) => void, heard: (event: Event) => void }} Session
 */

/** The questions of one session. */
export class Inbox {
  /**
   * @param {Daemon} daemon
   * @param {Session} session
   */
  constructor(daemon, session) {
    this.daemon = daemon;
    this.session = session;
    /** @type {Map<string, Card>} */
    this.cards = new Map();
    this.over = new AbortController();
    this.attempt = new AbortController();
    /** Whether what is shown is how it is. */
    this.live = false;
    /** @type {string | undefined} */
    this.lastEventId = undefined;
    /** @type {string | undefined} */
    this.selected = undefined;
    /** Whether the first questions were shown. */
    this.opened = false;
    /** Whether nobody has looked for a while, so that the list is asked for now and then and nothing is followed. */
    this.away = false;
    /** @type {number | undefined} */
    this.leaving = undefined;
    /** Wakes the pause between two attempts. */
    this.hurry = () => {};
  }

  async run() {
    page.state.replaceChildren('connecting');
    this.teach();
    const clock = setInterval(() => this.tick(), 250);
    this.over.signal.addEventListener('abort', () => clearInterval(clock));
    let pause = 250;
    while (!this.over.signal.aborted) {
      const heard = await this.follow();
      if (this.over.signal.aborted) return;
      this.setLive(false);
      pause = heard ? 250 : Math.min(pause * 2, LONGEST_PAUSE_MS);
      if (this.away) pause = AWAY_PAUSE_MS;
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, pause);
        this.hurry = () => { clearTimeout(timer); resolve(undefined); };
      });
    }
  }

  /** Reads what waits, then follows what happens, until the connection is lost. Returns whether there was one. */
  async follow() {
    let heard = false;
    this.attempt = new AbortController();
    const signal = AbortSignal.any([this.over.signal, this.attempt.signal]);
    try {
      const { seq, approvals } = await this.daemon.approvals();
      await this.reconcile(approvals);
      this.select(location.hash.slice(1));
      this.selectFirst();
      if (this.away) return true;
      const opened = () => { heard = true; this.setLive(true); };
      for await (const message of this.daemon.events({ after: seq, lastEventId: this.lastEventId, signal, opened })) {
        if (message.id !== undefined) this.lastEventId = message.id;
        this.hear(/** @type {Event} */ (JSON.parse(message.data)));
      }
    } catch (error) {
      if (this.over.signal.aborted) return heard;
      if (error instanceof Refused && error.status === 401) this.session.over();
      else if (error instanceof Refused && error.status !== 503 && error.status !== 429) tellPage(error.message, error.help);
      // Anything else is a connection that was lost, or a message that was cut; both are mended by beginning anew.
    }
    return heard;
  }

  /** Leaves some time after the tab is out of sight, and is back as soon as it is in sight. */
  look() {
    clearTimeout(this.leaving);
    if (document.hidden) {
      this.leaving = setTimeout(() => {
        this.away = true;
        this.attempt.abort();
      }, AWAY_AFTER_MS);
    } else {
      this.away = false;
      this.hurry();
    }
  }

  /** @param {Approval[]} approvals all that wait */
  async reconcile(approvals) {
    for (const approval of approvals) this.put(approval);
    const listed = new Set(approvals.map((approval) => approval.id));
    const gone = [...this.cards.values()].filter((card) => card.pending && !listed.has(card.approval.id));
    await Promise.all(gone.map((card) => this.refresh(card.approval.id)));
    this.tick();
  }

  /** @param {Event} event */
  hear(event) {
    this.session.heard(event);
    if (event.type === 'approval.requested' || event.type === 'approval.resolved') {
      // An erased record does not say which question it was about; the list does.
      const about = event.data?.prompt?.id ?? event.data?.id;
      if (typeof about === 'string') void this.refresh(about);
      else this.daemon.approvals().then(({ approvals }) => this.reconcile(approvals), (error) => this.lost(error));
    } else if (PROGRESS.has(event.type)) {
      for (const card of this.cards.values()) if (card.approval.call === event.call_id && !card.pending) void this.learn(card);
    }
  }

  /** @param {string} about */
  async refresh(about) {
    try {
      this.put(await this.daemon.approval(about));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) this.remove(about);
      else this.lost(error);
    }
  }

  /** @param {Card} card */
  async learn(card) {
    try {
      card.learn(await this.daemon.call(card.approval.call));
    } catch (error) {
      // A call whose record was erased has nothing more to tell.
      if (!(error instanceof Refused && error.status === 404)) this.lost(error);
    }
  }

  /** @param {unknown} error something that should have been read was not, so what is shown is out of date */
  lost(error) {
    if (error instanceof Refused && error.status === 401) this.session.over();
    else this.attempt.abort();
  }

  /**
   * Goes to the question that the address names, if it is there: `/#<id>`. Once, because somebody may have gone on since.
   * @param {string} wanted
   */
  select(wanted) {
    const card = this.cards.get(wanted);
    if (!card || this.selected === wanted) return;
    this.selected = wanted;
    card.root.focus({ preventScroll: true });
    card.root.scrollIntoView({ block: 'start' });
  }

  /**
   * Goes to the first question when the page opens, so that keys work at once. Never later, because a key would then answer a question that
   * nobody chose; and a card that has just come rests first.
   */
  selectFirst() {
    if (this.opened) return;
    this.opened = true;
    const first = [...this.cards.values()].find((card) => card.pending);
    if (document.activeElement === document.body) first?.root.focus({ preventScroll: true });
  }

  /** @param {Approval} approval */
  put(approval) {
    const known = this.cards.get(approval.id);
    if (known) {
      const waited = known.pending;
      known.update(approval);
      if (waited && !known.pending) this.resolved(known);
    } else {
      const card = new Card(approval, (on, answer) => void this.answer(on, answer), (on, pin) => void this.unlock(on, pin));
      this.cards.set(approval.id, card);
      if (card.pending) {
        page.waiting.append(card.root);
        say(`${approval.tool} by ${approval.principal} waits for an answer`);
      } else {
        this.archive(card);
        void this.learn(card);
      }
    }
    this.tick();
  }

  /** @param {Card} card */
  resolved(card) {
    say(`${card.approval.tool} by ${card.approval.principal}: ${card.outcome.textContent}`);
    void this.learn(card);
  }

  /** @param {string} about */
  remove(about) {
    this.cards.get(about)?.root.remove();
    this.cards.delete(about);
    this.restAll();
  }

  restAll() {
    for (const card of this.cards.values()) card.rest();
  }

  /** Takes that the view has come in sight, where a pointer may be about to click on something else. */
  shown() {
    this.restAll();
    this.tick();
  }

  /** Notes which cards could be read. */
  scrolled() {
    for (const card of this.cards.values()) card.wasShown();
  }

  /** @param {Card} card */
  archive(card) {
    card.fold();
    page.recent.prepend(card.root);
  }

  /**
   * Carries an answer to the daemon, with the digest of what this card shows.
   * @param {Card} card
   * @param {Answer} answer
   */
  async answer(card, answer) {
    const locked = card.locked();
    if (locked) return card.tell(locked);
    const { kind, ...how } = answer;
    const body = { digest: card.approval.digest, ...how };
    if ('message' in body && !body.message) delete body.message;
    card.busy = true;
    card.tell('Sending the answer…');
    this.tick();
    try {
      await this.daemon.post(`/api/v1/approvals/${encodeURIComponent(card.approval.id)}/${kind}`, body);
      card.tell('');
      card.closeForms();
    } catch (error) {
      this.refused(card, answer, error);
    }
    await this.refresh(card.approval.id);
    card.busy = false;
    this.tick();
  }

  /**
   * @param {Card} card
   * @param {Answer} answer
   * @param {unknown} error
   */
  refused(card, answer, error) {
    if (error instanceof Refused && error.status === 401) return this.session.over();
    if (error instanceof Refused && error.code === 'pin_needed') {
      card.tell('A PIN is needed before anything is answered from here.');
      return card.openPin(answer);
    }
    if (error instanceof Refused) {
      return card.tell(`Your answer did not count: ${error.message}.${error.help === undefined ? '' : ` ${capital(error.help)}.`}`);
    }
    card.tell('The daemon did not answer in time. Whether your answer counted shows as soon as it is heard from again.');
  }

  /**
   * @param {Card} card
   * @param {string} pin
   */
  async unlock(card, pin) {
    try {
      await this.daemon.post('/api/v1/approvals/unlock', { pin });
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return this.session.over();
      return card.tell(error instanceof Refused ? `${capital(error.message)}.` : 'The daemon did not answer.');
    }
    const answer = card.refusedAnswer;
    card.closeForms();
    if (answer) await this.answer(card, answer);
  }

  /** @param {boolean} live */
  setLive(live) {
    if (!live && this.live && !this.away) say('The connection is lost. Nothing can be answered until it is back.');
    this.live = live;
    if (live) tellPage('');
    page.state.dataset.state = live ? 'live' : 'stale';
    page.state.textContent = live ? '● live' : '◌ reconnecting: nothing can be answered';
    this.tick();
  }

  tick() {
    const cards = [...this.cards.values()];
    // What rests because it was moved shows that at once.
    this.sweep(cards);
    for (const card of cards) card.tick(this.live);
    const waiting = cards.filter((card) => card.pending).length;
    page.nothing.hidden = waiting > 0;
    page.recentPart.hidden = page.recent.childElementCount === 0;
    announce({ questions: waiting, current: this.live || this.away });
  }

  /**
   * Puts away what was answered some time ago, but nothing while somebody is at the cards.
   * @param {Card[]} cards
   */
  sweep(cards) {
    const atThem = page.waiting.matches(':hover') || page.waiting.contains(document.activeElement);
    const old = (/** @type {Card} */ card) => !card.pending && performance.now() - card.answeredAt > LINGERS_MS;
    if (!atThem) {
      const moved = cards.filter((card) => card.root.parentElement === page.waiting && old(card));
      for (const card of moved) this.archive(card);
      if (moved.length > 0) for (const card of cards) card.rest();
    }
    this.fold(cards);
    const listed = [...page.recent.children];
    for (const [place, root] of listed.entries()) {
      const card = this.cards.get(root.id);
      const done = place >= LISTED || (card && performance.now() - card.answeredAt > LISTED_MS);
      if (done && !root.contains(document.activeElement)) this.remove(root.id);
    }
  }

  /**
   * Makes what was answered a moment ago one line. Cards that wait below come nearer, so not while the pointer is on the list, where it may be
   * about to click; and they rest.
   * @param {Card[]} cards
   */
  fold(cards) {
    const pointed = page.waiting.matches(':hover');
    const shown = cards.filter((card) => card.root.parentElement === page.waiting);
    const last = shown.findLastIndex((card) => card.pending);
    const due = shown.filter((card, place) => !card.pending && !card.folded && performance.now() - card.answeredAt > FOLDS_MS
      && (!pointed || place > last));
    for (const card of due) card.fold();
    if (due[0]) for (const card of shown.slice(shown.indexOf(due[0]))) card.rest();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.key === 'j' || event.key === 'k') return step(event.key === 'j' ? 1 : -1);
    const card = this.cards.get(/** @type {Element} */ (event.target).closest('.card')?.id ?? '');
    // A key that is held down answers once.
    if (!card || !card.pending || event.repeat) return;
    const answers = new Map([['a', card.once], ['r', card.forSession], ['d', card.deny]]);
    const leads = new Map([['D', () => card.openMessage()], ['u', () => card.minutes.focus()]]);
    const answer = answers.get(event.key);
    if (answer && !card.wasShown()) card.tell('Scroll to the end of this card first: a key answers only what could be read.');
    else (answer ?? leads.get(event.key))?.();
    // The letter belongs to the card, and not to a field that has just got the focus.
    if (answer || leads.has(event.key)) event.preventDefault();
  }

  /** Shows how a first call is made, with a workspace that there is. */
  async teach() {
    /** @type {{ workspaces?: { name: string }[] }} */
    const { workspaces } = await this.daemon.get('/api/v1/workspaces').catch(() => ({}));
    const call = { tool: 'process.run', workspace: workspaces?.[0]?.name ?? 'WORKSPACE', args: { command: ['git', 'push'] } };
    page.firstCall.textContent = [
      `curl ${location.origin}/api/v1/calls \\`,
      '  -H "Authorization: Bearer $(cat "${PALYRA_HOME:-$HOME/.local/share/palyra}/identity/agent.token")" \\',
      "  -H 'Content-Type: application/json' \\",
      `  -d '${JSON.stringify(call)}'`,
    ].join('\n');
  }

  /** Ends: nothing of this session is left on the page. */
  end() {
    this.over.abort();
    clearTimeout(this.leaving);
    this.hurry();
    page.waiting.replaceChildren();
    page.recent.replaceChildren();
    this.cards.clear();
  }
}

/** @param {number} by */
function step(by) {
  const all = /** @type {HTMLElement[]} */ ([...page.inbox.querySelectorAll('.card')]);
  const at = all.findIndex((card) => card.contains(document.activeElement));
  const next = at < 0 ? all[by > 0 ? 0 : all.length - 1] : all[at + by];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: 'start' });
}
