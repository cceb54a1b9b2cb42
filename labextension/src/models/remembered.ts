// The lines of kernels that have ended: they stay with the outputs that these kernels have left in a notebook.
// Kept in the browser, by the notebook's path, so that no file is touched. Law: bounded, the oldest notebook goes;
// nothing remembered is called durable, for the variables ended with the kernel.
import type { IExecution } from '../generated/live';
import type { LiveStore } from './live';

const PREFIX = '@replkernel/labextension:lines:';
const NOTEBOOKS_MAX = 20;
const CELLS_MAX = 200;
/** So long after a change it is written down. */
const KEEP_MS = 1_000;
/** The error of a cell that was not done when its kernel ended. */
export const KERNEL_ENDED = 'KernelEnded';

/** The part of a browser's storage that is needed. */
export type Shelf = Pick<Storage, 'length' | 'key' | 'getItem' | 'setItem' | 'removeItem'>;

interface IPage {
  at: number;
  cells: IExecution[];
}

/** What is remembered of one notebook's cells. */
export type Remembered = ReadonlyMap<string, IExecution>;

/** What stays of an execution once its kernel has ended. */
export function ended(execution: IExecution): IExecution {
  const cut = execution.state === 'done' ? {} : { status: 'error', ename: KERNEL_ENDED, began_at: null };
  return {
    ...execution,
    ...cut,
    state: 'done',
    safety: 'nothing',
    trouble: '',
    unaudited: [],
    durable_at: null
  };
}

/** Bring what is remembered up to date with all that a living kernel knows of its cells. */
export function updated(
  known: Remembered,
  kernelId: string,
  living: ReadonlyMap<string, IExecution>
): Remembered {
  const others = [...known].filter(([, execution]) => execution.kernel_id !== kernelId);
  const all = new Map([...others, ...[...living].map(([cell, one]) => [cell, ended(one)] as const)]);
  return new Map([...all].slice(-CELLS_MAX));
}

/** What stays once a kernel was restarted: what it ran belongs to none that lives. */
export function restarted(known: Remembered, kernelId: string): Remembered {
  return new Map(
    [...known].map(([cell, one]) => [cell, one.kernel_id === kernelId ? { ...one, kernel_id: '' } : one])
  );
}

/** Read what is remembered of a notebook; what cannot be read is nothing. */
export function recall(shelf: Shelf, notebook: string): Remembered {
  const cells = read(shelf, PREFIX + notebook)?.cells ?? [];
  return new Map(cells.map(one => [one.cell_id, one]));
}

/** Keep what is remembered of a notebook, at a Unix time; where there is no room, older notebooks go first. */
export function keep(shelf: Shelf, notebook: string, known: Remembered, now: number): void {
  const key = PREFIX + notebook;
  shelf.removeItem(key);
  if (known.size === 0) {
    return;
  }
  const others = keys(shelf)
    .map(name => ({ name, at: read(shelf, name)?.at ?? 0 }))
    .sort((one, other) => other.at - one.at);
  others.splice(NOTEBOOKS_MAX - 1).forEach(({ name }) => {
    shelf.removeItem(name);
  });
  const page: IPage = { at: now, cells: [...known.values()] };
  for (;;) {
    try {
      shelf.setItem(key, JSON.stringify(page));
      return;
    } catch {
      const oldest = others.pop();
      if (oldest === undefined) {
        return; // There is no room at all: lines end with the page.
      }
      shelf.removeItem(oldest.name);
    }
  }
}

/** What is remembered of one notebook, written down a moment after the last change. */
export class LineMemory {
  private _known: Remembered = new Map<string, IExecution>();
  private _keeping: ReturnType<typeof setTimeout> | undefined;
  /** What ran before the last restart; for a moment the store still tells of it. */
  private _over = new Set<string>();

  constructor(private readonly _notebook: () => string) {}

  /** Read what was written down. */
  open(): void {
    this._known = recall(localStorage, this._notebook());
  }

  /** What is remembered of a cell, of another kernel than this one. */
  past(cellId: string, kernelId: string): IExecution | null {
    const past = this._known.get(cellId);
    return past === undefined || past.kernel_id === kernelId ? null : past;
  }

  has(execution: IExecution): boolean {
    return this._known.get(execution.cell_id) === execution;
  }

  /** Remember what a kernel knows of its cells, if it lives a moment from now. */
  follow(kernelId: () => string, store: LiveStore): void {
    clearTimeout(this._keeping);
    this._keeping = setTimeout(() => {
      const name = kernelId();
      if (store.current && store.kernel(name) !== null) {
        const living = [...store.cells(name)].filter(([, one]) => !this._over.has(one.msg_id));
        this._known = updated(this._known, name, new Map(living));
        this._keep();
      }
    }, KEEP_MS);
  }

  /** A kernel is restarted: its lines stay, as those of one that has ended do. */
  restart(kernelId: string, store: LiveStore): void {
    const cells = store.cells(kernelId);
    if (cells.size > 0) {
      this._over = new Set([...cells.values()].map(one => one.msg_id));
      this._known = restarted(updated(this._known, kernelId, cells), kernelId);
      this._keep();
    }
  }

  private _keep(): void {
    keep(localStorage, this._notebook(), this._known, Date.now() / 1000);
  }

  stop(): void {
    clearTimeout(this._keeping);
  }
}

function keys(shelf: Shelf): string[] {
  return Array.from({ length: shelf.length }, (_, at) => shelf.key(at) ?? '').filter(name =>
    name.startsWith(PREFIX)
  );
}

function read(shelf: Shelf, key: string): IPage | null {
  try {
    const page = JSON.parse(shelf.getItem(key) ?? 'null') as Partial<IPage> | null;
    return Array.isArray(page?.cells) ? { at: Number(page.at) || 0, cells: page.cells } : null;
  } catch {
    return null;
  }
}
