// The histories of the notebooks that are looked at, and what is done about them: asked of the server extension.
// Law: a history is asked for when it may have changed and somebody looks; what would be lost is asked first.
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';

import type { IComparisonDocument, IExecution, IHistoryDocument, ILost, INotDone } from '../generated/live';
import type { LiveConnection } from './connection';
import type { ITouched } from './live';
import { isResting } from './notebookState';

const PATH = 'replkernel/api/kernels';
/** Cells that follow one another quickly are followed by one question. */
const SOON_MS = 300;
const AGAIN_MS = 5000;

/** Asks a person whether a notebook goes on without what cannot come back. */
export type Confirm = (lost: readonly ILost[]) => Promise<boolean>;
/** How a notebook gets to another point. */
export type Way = 'undo' | 'redo' | 'goto' | 'switch';

interface IKnown {
  wanted: number;
  document: IHistoryDocument | null;
  trouble: string;
  seen: string;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** What is known of each notebook's history, for as long as somebody wants to know. */
export class Histories {
  private readonly _known = new Map<string, IKnown>();
  private readonly _changed = new Signal<this, string>(this);

  constructor(
    private readonly _settings: ServerConnection.ISettings,
    private readonly _live: LiveConnection,
    private readonly _confirm: Confirm
  ) {
    _live.changed.connect(this._onLive, this);
  }

  /** Emitted with a kernel's id when its history is another. */
  get changed(): ISignal<this, string> {
    return this._changed;
  }

  /** A kernel's history; null while it is not known. */
  of(kernelId: string): IHistoryDocument | null {
    return this._known.get(kernelId)?.document ?? null;
  }

  /** Why a kernel's history is not known. */
  trouble(kernelId: string): string {
    return this._known.get(kernelId)?.trouble ?? '';
  }

  /** Want to know, until the function that is returned is called. */
  want(kernelId: string): () => void {
    const known = this._of(kernelId);
    known.wanted += 1;
    if (known.document === null) {
      this._soon(kernelId, 0);
    }
    let wanted = true;
    return () => {
      if (wanted) {
        wanted = false;
        known.wanted -= 1;
        if (known.wanted === 0) {
          clearTimeout(known.timer);
          this._known.delete(kernelId);
        }
      }
    };
  }

  /** Want to know of one kernel at a time: of that with which what is returned was called last; empty: of none. */
  follow(): (kernelId: string) => void {
    let followed = '';
    let release = (): void => undefined;
    return kernelId => {
      if (kernelId !== followed) {
        release();
        followed = kernelId;
        release = kernelId === '' ? () => undefined : this.want(kernelId);
      }
    };
  }

  /** Ask for a kernel's history now, whoever wants to know. */
  async look(kernelId: string): Promise<IHistoryDocument> {
    const answer = await this._ask(kernelId, 'GET', 'history');
    return (await checked(answer)).json() as Promise<IHistoryDocument>;
  }

  /** Take a notebook to another point; empty when a person has called it off. */
  async travel(kernelId: string, way: Way, to = ''): Promise<boolean> {
    const since = this.of(kernelId)?.here ?? '';
    const body = { to, since, confirm: false };
    let answer = await this._ask(kernelId, 'POST', `history/${way}`, body);
    if (answer.status === 409) {
      const why = (await answer.json()) as INotDone;
      if (why.reason === 'moved') {
        this._soon(kernelId, 0);
      }
      if (why.reason !== 'confirm') {
        throw new Error(why.message);
      }
      if (!(await this._confirm(why.lost ?? []))) {
        return false;
      }
      answer = await this._ask(kernelId, 'POST', `history/${way}`, { ...body, confirm: true });
    }
    await this._take(kernelId, answer);
    return true;
  }

  /** Name a point. */
  async mark(kernelId: string, name: string, point: string): Promise<void> {
    const way = `history/marks/${encodeURIComponent(name)}`;
    await this._take(kernelId, await this._ask(kernelId, 'PUT', way, { point }));
  }

  /** Take the name of a point away. */
  async unmark(kernelId: string, name: string): Promise<void> {
    const way = `history/marks/${encodeURIComponent(name)}`;
    await this._take(kernelId, await this._ask(kernelId, 'DELETE', way));
  }

  /** Begin a branch where the notebook is. */
  async branch(kernelId: string, name: string): Promise<void> {
    const way = `history/branches/${encodeURIComponent(name)}`;
    await this._take(kernelId, await this._ask(kernelId, 'PUT', way, {}));
  }

  /** Tell how two points differ. */
  async compare(kernelId: string, one: string, other: string): Promise<IComparisonDocument> {
    const query = URLExt.objectToQueryString({ one, other });
    const answer = await this._ask(kernelId, 'GET', `history/compare${query}`);
    return (await checked(answer)).json() as Promise<IComparisonDocument>;
  }

  /** Make a kernel that hibernates with the state of a point of this one; return its id. */
  async fork(kernelId: string, point: string): Promise<string> {
    const answer = await this._ask(kernelId, 'POST', 'forks', { count: 1, at: point });
    const made = (await (await checked(answer)).json()) as { ids: string[] };
    return made.ids[0] ?? '';
  }

  private _of(kernelId: string): IKnown {
    let known = this._known.get(kernelId);
    if (known === undefined) {
      known = { wanted: 0, document: null, trouble: '', seen: '', timer: undefined };
      this._known.set(kernelId, known);
    }
    return known;
  }

  private _ask(kernelId: string, method: string, way: string, body?: object): Promise<Response> {
    const url = URLExt.join(this._settings.baseUrl, PATH, encodeURIComponent(kernelId), way);
    const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    return ServerConnection.makeRequest(url, init, this._settings);
  }

  private async _take(kernelId: string, answer: Response): Promise<void> {
    const document = (await (await checked(answer)).json()) as IHistoryDocument;
    const known = this._known.get(kernelId);
    if (known !== undefined) {
      known.document = document;
      known.trouble = '';
      this._changed.emit(kernelId);
    }
  }

  /** Ask again once a cell has ended otherwise, or is durable: what a line of magic took back is so as well. */
  private _onLive(_: unknown, touched: ITouched): void {
    for (const [kernelId, known] of this._known) {
      if (touched.kernels.has(kernelId)) {
        const cells = [...this._live.store.cells(kernelId).values()];
        const seen = cells.map(ended).join();
        const awake = this._live.store.kernel(kernelId)?.rest ?? '';
        if (`${awake} ${seen}` !== known.seen) {
          known.seen = `${awake} ${seen}`;
          this._soon(kernelId, SOON_MS);
        }
      }
    }
  }

  private _soon(kernelId: string, wait: number): void {
    const known = this._known.get(kernelId);
    if (known === undefined) {
      return; // Nobody wants to know any more.
    }
    clearTimeout(known.timer);
    known.timer = setTimeout(() => {
      if (known.wanted > 0) {
        void this._look(kernelId, known);
      }
    }, wait);
  }

  private async _look(kernelId: string, known: IKnown): Promise<void> {
    try {
      await this._take(kernelId, await this._ask(kernelId, 'GET', 'history'));
    } catch (error) {
      known.trouble = error instanceof Error ? error.message : String(error);
      this._changed.emit(kernelId);
      const kernel = this._live.store.kernel(kernelId);
      if (kernel !== null && !isResting(kernel)) {
        this._soon(kernelId, AGAIN_MS); // One that is not there or at rest is asked as it comes or wakes: `_onLive`.
      }
    }
  }
}

function ended(execution: IExecution): string {
  return execution.state === 'done' ? `${execution.msg_id} ${execution.safety}` : '';
}

/** Return an answer that is one; what was refused is an error with the server's sentence. */
async function checked(answer: Response): Promise<Response> {
  if (answer.ok) {
    return answer;
  }
  const why = (await answer.json().catch(() => ({}))) as { message?: string };
  throw new Error(why.message ?? `${answer.status} ${answer.statusText}`);
}
