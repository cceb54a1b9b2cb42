// What is worth a notification: an executor lost, a kernel resumed, GPUs refused (a quota), the scheduler out of reach.
// Pure: no JupyterLab, no DOM, no clock. Law: each is told once, when it has been so for a moment; a restart that a
// person wanted, a move and hibernation are no losses; what was so before the page looked is no news, but for trouble.
import type { IAccount, IExecution, IKernel, IReplica } from '../generated/live';
import { formatMoney } from './facts.js';
import type { ITranslate } from './line';
import type { LiveStore } from './live';
import { isWell } from './replicasInWords.js';

/** What may be told; each can be switched off. */
export type Kind = 'executorLost' | 'stateRestored' | 'quotaReached' | 'schedulerUnreachable';

/** One notification. */
export interface INotice {
  kind: Kind;
  type: 'info' | 'success' | 'warning' | 'error';
  message: string;
  /** The kernel of which a cell was cut short, and may be run again; empty where none was. */
  again: string;
}

/** So long a loss waits for what may explain it: a restart, a move, hibernation. */
export const LOSS_CALM_S = 1.5;
/** The error of a cell whose process died. */
export const LOST = 'ExecutorLost';
/** The error of a cell that was refused GPUs, by a quota or because no host has so many. */
const REFUSED = 'GpusDenied';
/** From this part of a budget on people hear that it will be spent. */
const SOON = 0.9;
/** JupyterLab cuts what is longer. */
const MESSAGE_MAX = 140;
const NAMED_MAX = 3;

interface ILoss {
  replica: string;
  why: string;
  /** Variables that lived in its process alone. */
  pinned: readonly string[];
  count: number;
  at: number;
}

interface ISeen {
  executor: IReplica | null;
  pinned: readonly string[];
  count: number;
  resting: boolean;
}

/** Watches what is known and says what is new. */
export class News {
  private readonly _seen = new Map<string, ISeen>();
  private readonly _losses = new Map<string, ILoss>();
  private readonly _resuming = new Set<string>();
  private _awayTold = false;
  private _full: ReadonlySet<string> = new Set();
  /** Executions that were refused GPUs, by kernel, of which nothing more is to be told. */
  private readonly _refused = new Map<string, ReadonlySet<string>>();

  constructor(
    private readonly _name: (kernelId: string) => string,
    private readonly _trans: ITranslate
  ) {}

  /** Tell what is new at a Unix time. */
  look(store: LiveStore, now: number): INotice[] {
    const notices: INotice[] = [];
    for (const kernel of store.kernels) {
      if (kernel.served) {
        const cells = [...store.cells(kernel.kernel_id).values()];
        this._lookAt(kernel, cells, now, notices);
        this._lookAtCells(kernel.kernel_id, cells, notices);
      }
    }
    for (const known of [...this._seen.keys()]) {
      if (store.kernel(known) === null) {
        this._seen.delete(known);
        this._losses.delete(known);
        this._resuming.delete(known);
        this._refused.delete(known);
      }
    }
    this._lookAtScheduler(store.scheduler.trouble, notices);
    this._lookAtQuota(store.account, notices);
    return notices;
  }

  /** When `look` may have something to say that nothing announces; null: not before something changes. */
  deadline(): number | null {
    const waits = [...this._losses.values()].map(loss => loss.at + LOSS_CALM_S);
    return waits.length === 0 ? null : Math.min(...waits);
  }

  private _lookAt(kernel: IKernel, cells: readonly IExecution[], now: number, notices: INotice[]): void {
    const id = kernel.kernel_id;
    const before = this._seen.get(id);
    const well = kernel.replicas.filter(isWell).length;
    const resting = kernel.rest !== 'awake' && kernel.rest !== '';
    const executor = resting ? null : (executorOf(kernel) ?? stillThere(kernel, before));
    const pinned = executor?.role === 'executor' ? executor.pins.map(pin => pin.name) : before?.pinned;
    this._seen.set(id, { executor, pinned: pinned ?? [], count: kernel.execution_count, resting });
    if (before !== undefined) {
      this._resumed(kernel, before, well, resting, notices);
      this._lost(kernel, before, now);
    }
    const loss = this._losses.get(id);
    if (loss !== undefined) {
      this._goOn(kernel, loss, cells, resting, now, notices);
    }
  }

  /** Note that the executor's process is no more. */
  private _lost(kernel: IKernel, before: ISeen, now: number): void {
    const { executor } = before;
    if (executor === null || before.resting || this._losses.has(kernel.kernel_id)) {
      return;
    }
    const replica = kernel.replicas.find(one => one.replica === executor.replica);
    if (replica === undefined) {
      return; // It was moved, or its host is no longer there, which its successor tells.
    }
    const followed = replica.pid !== 0 && executor.pid !== 0 && replica.pid !== executor.pid;
    const died =
      replica.last_death !== '' &&
      (replica.last_death !== executor.last_death || !isWell(replica) || followed);
    if (died) {
      const { replica: name, last_death: why } = replica;
      const { count, pinned } = before;
      this._losses.set(kernel.kernel_id, { replica: name, why, pinned, count, at: now });
    }
  }

  private _goOn(
    kernel: IKernel,
    loss: ILoss,
    cells: readonly IExecution[],
    resting: boolean,
    now: number,
    notices: INotice[]
  ): void {
    const trans = this._trans;
    const id = kernel.kernel_id;
    if (resting || kernel.execution_count < loss.count) {
      this._losses.delete(id); // It was hibernated, or restarted.
      return;
    }
    if (now >= loss.at + LOSS_CALM_S) {
      this._losses.delete(id);
      const cutShort = cells.some(one => one.ename === LOST && one.replica === loss.replica);
      const lost = cells.some(one => one.safety === 'lost' && one.ename !== LOST);
      const kept = keptInWords(lost, cutShort, loss.pinned, trans);
      const written = (why: string): string =>
        trans('%1: the process that ran its cells died: %3. %2.', this._name(id), kept, why);
      notices.push({
        kind: 'executorLost',
        type: 'warning',
        message: cut(written(cut(loss.why, MESSAGE_MAX - written('').length))),
        again: cutShort ? id : ''
      });
    }
  }

  private _resumed(kernel: IKernel, before: ISeen, well: number, resting: boolean, notices: INotice[]): void {
    const id = kernel.kernel_id;
    if (resting) {
      this._resuming.delete(id);
    } else if (before.resting) {
      this._resuming.add(id);
    }
    if (this._resuming.has(id) && well > 0) {
      this._resuming.delete(id);
      const message = this._trans('%1: resumed with all its variables', this._name(id));
      notices.push({ kind: 'stateRestored', type: 'success', message: cut(message), again: '' });
    }
  }

  private _lookAtScheduler(trouble: string, notices: INotice[]): void {
    const trans = this._trans;
    if (trouble === '') {
      if (this._awayTold) {
        const message = trans(
          'The GPU scheduler answers again; waiting cells have kept their place in line.'
        );
        notices.push({ kind: 'schedulerUnreachable', type: 'success', message, again: '' });
      }
      this._awayTold = false;
      return;
    }
    if (!this._awayTold) {
      this._awayTold = true;
      const message = trans(
        'The GPU scheduler is out of reach. Cells without GPUs run, and you keep the GPUs you have; new requests wait.'
      );
      notices.push({ kind: 'schedulerUnreachable', type: 'error', message: cut(message), again: '' });
    }
  }

  /** Tell of cells that were refused GPUs since the last look, each reason once. */
  private _lookAtCells(id: string, cells: readonly IExecution[], notices: INotice[]): void {
    const before = this._refused.get(id);
    const refused = cells.filter(one => one.ename === REFUSED && one.trouble !== '');
    this._refused.set(id, new Set(refused.map(one => one.msg_id)));
    const news = refused.filter(one => before !== undefined && !before.has(one.msg_id));
    for (const why of new Set(news.map(one => one.trouble))) {
      const message = this._trans('%1: %2', this._name(id), why);
      notices.push({ kind: 'quotaReached', type: 'warning', message: cut(message), again: '' });
    }
  }

  private _lookAtQuota(account: IAccount | null, notices: INotice[]): void {
    const told =
      account === null ? [] : [hoursUsedUp(account, this._trans), budgetUsedUp(account, this._trans)];
    for (const message of told.filter(text => text !== '' && !this._full.has(text))) {
      notices.push({ kind: 'quotaReached', type: 'warning', message: cut(message), again: '' });
    }
    this._full = new Set(told);
  }
}

/** Write that the month's GPU-hours are used up; empty where they are not. */
export function hoursUsedUp(account: IAccount, trans: ITranslate): string {
  const { gpu_hours_month: hours, gpu_hours_month_quota: limit } = account;
  return limit !== null && hours >= limit
    ? trans('Your quota of %1 GPU-hours a month is used up: cells that ask for GPUs are refused.', limit)
    : '';
}

/** Write that the month's budget is spent, or will be before long; empty where neither is. */
export function budgetUsedUp(account: IAccount, trans: ITranslate): string {
  const { spent_month: spent, budget_month: budget, currency } = account;
  if (budget === null || spent === null || spent < SOON * budget) {
    return '';
  }
  const money = formatMoney(budget, currency);
  return spent < budget
    ? trans(
        'Nine tenths of your budget of %1 a month are spent. Once all of it is, cells that ask for GPUs are refused.',
        money
      )
    : trans('Your budget of %1 a month is spent: cells that ask for GPUs are refused.', money);
}

/** Write what is safe, and what to do about the rest. */
function keptInWords(lost: boolean, cutShort: boolean, pinned: readonly string[], trans: ITranslate): string {
  if (lost) {
    return trans('Run the cells marked “Changes lost” again');
  }
  if (pinned.length > 0) {
    const named = pinned.slice(0, NAMED_MAX).join(', ') + (pinned.length > NAMED_MAX ? ', …' : '');
    return trans('All variables are safe except %1: run their cells again', named);
  }
  return cutShort
    ? trans('The notebook’s variables are safe: run the cell again')
    : trans('The notebook’s variables are safe: run the next cell');
}

function cut(text: string, most = MESSAGE_MAX): string {
  return text.length <= most ? text : `${text.slice(0, Math.max(0, most - 1))}…`;
}

/** The executor: the router says some seconds before its host does that a replica is no standby any more. */
function executorOf(kernel: IKernel): IReplica | undefined {
  return (
    kernel.replicas.find(one => one.replica === kernel.executor && one.role === 'standby') ??
    kernel.replicas.find(one => one.role === 'executor')
  );
}

/**
 * The executor of before, as long as nothing is told to have happened to it: one that dies while it is asked something
 * loses its role before its end is told, and an agent that is late tells nothing of it.
 */
function stillThere(kernel: IKernel, before: ISeen | undefined): IKernel['replicas'][number] | null {
  const was = before?.executor ?? null;
  const now = kernel.replicas.find(one => one.replica === was?.replica);
  if (now === undefined) {
    return was;
  }
  return now.pid === was?.pid && now.last_death === was.last_death ? now : null;
}
