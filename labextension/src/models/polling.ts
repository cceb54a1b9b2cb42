// Which question the journal is asked next, and when. Pure: time is an input, in milliseconds.
// Laws: what still runs is asked about for at most a tenth of the time, whatever an answer costs; a question that
// nobody answers is asked again, later each time, and not for ever.

/** All executions; those that have changed; those that are being followed, whether or not they seem to have changed. */
export type Question = 'followed' | 'news' | 'all';

/** The shortest time between two questions about what runs. */
export const INTERVAL_MIN_MS = 250;
/** An answer that took so long is followed by this many times as long without a question. */
export const REST_FACTOR = 10;
/** How long to wait for a sign of what runs before asking anyway: signs can be lost. */
export const SILENCE_MAX_MS = 5000;
/** The wait after the first question that failed; it doubles with each further one. */
export const RETRY_MS = 1000;
/** How many questions in a row may fail. */
export const FAILURES_MAX = 5;

const RANK: Readonly<Record<Question, number>> = { followed: 0, news: 1, all: 2 };

/** The questions to come, of which only the widest and the soonest count. */
export class Polling {
  private _next: { readonly question: Question; readonly at: number } | null = null;
  private _rested = 0;
  private _failures = 0;

  /** When the next question is due; null: there is none. */
  get due(): number | null {
    return this._next?.at ?? null;
  }

  /** The page was opened or is connected again: everything may have changed. */
  opened(now: number): void {
    this._failures = 0;
    this._want('all', now);
  }

  /** A message of an execution that is followed has come. */
  sign(now: number): void {
    this._want('news', Math.max(now, this._rested));
  }

  /** Take the question that is due. */
  take(): Question | null {
    const question = this._next?.question ?? null;
    this._next = null;
    return question;
  }

  /** The question asked at `began` was answered at `ended`; `following`: something still runs. */
  answered(began: number, ended: number, following: boolean): void {
    this._failures = 0;
    this._rested = Math.max(began + INTERVAL_MIN_MS, ended + REST_FACTOR * (ended - began));
    if (this._next !== null) {
      this._next = { ...this._next, at: Math.max(this._next.at, this._rested) };
    }
    if (following) {
      this._want('followed', Math.max(ended + SILENCE_MAX_MS, this._rested));
    }
  }

  /** Nobody answered. */
  failed(now: number): void {
    this._failures += 1;
    if (this._failures < FAILURES_MAX) {
      this._want('all', now + RETRY_MS * 2 ** (this._failures - 1));
    }
  }

  private _want(question: Question, at: number): void {
    const next = this._next;
    if (next === null) {
      this._next = { question, at };
    } else {
      const wider = RANK[question] > RANK[next.question] ? question : next.question;
      this._next = { question: wider, at: Math.min(at, next.at) };
    }
  }
}
