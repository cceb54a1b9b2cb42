// What one page knows of its kernel's executions, and what it should do about an answer of the journal. Pure.
// Laws: a cell whose execution this page follows itself, without a gap, is left alone; of a cell only the newest
// execution counts; nothing is shown twice, so what a user clears stays cleared; a cell whose code is not the code
// that ran is left alone, and the journal keeps what ran until a notebook holds it or something newer of the cell.
import { textDigest } from './digest.js';
import type { IExecution } from './journal';

/** How many executions are remembered of each kind; the oldest are forgotten first. */
export const REMEMBERED_MAX = 5000;

/** What a cell of the notebook is, as far as the journal is concerned. */
export interface ICellView {
  /** SHA-256 of its source, in hex. */
  readonly codeDigest: string;
  /** The execution that this page itself asked for last in this cell; null when it asked for none. */
  readonly own: string | null;
}

/** Finds a cell by its id; null when the notebook has none. */
export type FindCell = (cellId: string) => ICellView | null;

/** Show an execution in its cell. */
export interface IPlacement {
  readonly execution: IExecution;
  /** Whether this page asked for it: from now on the journal alone says what it published. */
  readonly takeOver: boolean;
}

/** What was decided upon last of an execution. */
interface IDecided {
  readonly version: number;
  /** The digest of what it left; empty while it runs. */
  readonly left: string;
}

/** The page's memory of one kernel's executions. */
export class Ledger {
  private readonly _decided = new Map<string, IDecided>();
  private readonly _newest = new Map<string, { readonly msgId: string; readonly began: number }>();
  private readonly _following = new Map<string, string>();
  private readonly _interrupted = new Set<string>();
  private readonly _ended = new Set<string>();
  private _version = 0;

  /** The newest version that an answer has named. */
  get version(): number {
    return this._version;
  }

  /** The executions that the journal speaks for and that still run, with their cells. */
  get following(): ReadonlyMap<string, string> {
    return this._following;
  }

  /** The connection is gone while these executions of this page run: what they publish may be missed. */
  interrupt(running: Iterable<string>): void {
    for (const msgId of running) {
      this._interrupted.add(msgId);
    }
  }

  /** An execution of this page has ended, and everything that it published came here. */
  ended(msgId: string): void {
    if (!this._interrupted.has(msgId)) {
      this._ended.add(msgId);
      limit(this._ended);
    }
  }

  /** Say what to show after an answer; each execution is decided upon once for each of its versions. */
  decide(executions: readonly IExecution[], find: FindCell): IPlacement[] {
    for (const execution of executions) {
      const countsAnew = execution.version < (this._decided.get(execution.msgId)?.version ?? 0);
      this._version = Math.max(countsAnew ? 0 : this._version, execution.version);
      const newest = this._newest.get(execution.cellId);
      const start = began(execution);
      if (newest === undefined || newest.msgId === execution.msgId || start >= newest.began) {
        this._newest.set(execution.cellId, { msgId: execution.msgId, began: start });
        limit(this._newest);
      }
    }
    return executions
      .filter(execution => this._concerns(execution, find))
      .flatMap(execution => {
        const placement = this._place(execution, find(execution.cellId));
        return placement === null ? [] : [placement];
      });
  }

  /** Forget what was followed and is not in the whole journal any more; returns the cells that waited for it. */
  vanished(present: ReadonlySet<string>): string[] {
    const gone = [...this._following].filter(([msgId]) => !present.has(msgId));
    for (const [msgId] of gone) {
      this._following.delete(msgId);
    }
    return gone.map(([, cellId]) => cellId);
  }

  /** The executions that have ended and whose cells, where there still are any, show what they published. */
  toAcknowledge(): string[] {
    return [...this._ended];
  }

  /** The journal has been told that a saved notebook has these. */
  acknowledged(msgIds: readonly string[]): void {
    for (const msgId of msgIds) {
      this._ended.delete(msgId);
    }
  }

  /** Whether an execution is news, is of this notebook, and is not followed without a gap by the page itself. */
  private _concerns(execution: IExecution, find: FindCell): boolean {
    const { msgId, version } = execution;
    const decided = this._decided.get(msgId);
    const cell = find(execution.cellId);
    const followedLive = cell?.own === msgId && !this._interrupted.has(msgId);
    if (decided?.version === version || followedLive || (cell === null && decided === undefined)) {
      return false;
    }
    const left = leftBy(execution);
    this._decided.set(msgId, { version, left });
    limit(this._decided);
    // A router that was started again counts its versions anew: nothing has changed then.
    return left === '' || left !== decided?.left;
  }

  private _place(execution: IExecution, cell: ICellView | null): IPlacement | null {
    const { msgId, cellId, running } = execution;
    this._following.delete(msgId);
    const counts = cell !== null && this._newest.get(cellId)?.msgId === msgId;
    if (counts && !fits(execution, cell)) {
      return null;
    }
    if (!running) {
      this._ended.add(msgId);
      limit(this._ended);
    }
    if (!counts) {
      return null;
    }
    if (running) {
      this._following.set(msgId, cellId);
    }
    return { execution, takeOver: cell.own !== null };
  }
}

/** Whether an execution is what a cell would show. */
function fits(execution: IExecution, cell: ICellView): boolean {
  return cell.own === null ? cell.codeDigest === execution.codeDigest : cell.own === execution.msgId;
}

/** What an execution left, in short; nothing while it runs. */
function leftBy(execution: IExecution): string {
  return execution.running ? '' : textDigest(JSON.stringify(execution.outputs));
}

/** When an execution began; one that waits in the queue begins after all others. */
function began(execution: IExecution): number {
  return execution.started ?? (execution.running ? Infinity : (execution.ended ?? 0));
}

/** Forget the oldest of a memory that has grown beyond its bound. */
function limit(memory: Map<string, unknown> | Set<string>): void {
  for (const oldest of memory.keys()) {
    if (memory.size <= REMEMBERED_MAX) {
      return;
    }
    memory.delete(oldest);
  }
}
