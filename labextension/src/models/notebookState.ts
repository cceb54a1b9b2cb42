// What a notebook's kernel does now: the one sentence that panel, status bar and Running panel show. Pure.
// Law: what its cells do comes before what its replicas report, which is some seconds old.
import type { IExecution, IKernel } from '../generated/live';
import { gpusCounted, holder } from './cluster.js';
import type { NameKernel } from './cluster';
import type { ITranslate } from './line';
import { gpusInWords, waitingText } from './line.js';
import type { LiveStore } from './live';

/** What it does. */
export type Doing =
  'unknown' | 'silent' | 'hibernated' | 'hibernating' | 'starting' | 'waiting' | 'running' | 'idle';

/** What it does, in words. */
export interface INotebookState {
  doing: Doing;
  text: string;
}

/** Tell whether a kernel is hibernated. */
export function isResting(kernel: IKernel): boolean {
  return kernel.rest === 'asleep' || (kernel.state === 'hibernated' && kernel.rest === '');
}

/** What a person may have done to a kernel. */
export type Possible = 'ask' | 'release' | 'hibernate' | 'resume';

/** Tell whether something can be done to a kernel as it is now. */
export function possible(kernel: IKernel, does: Possible): boolean {
  switch (does) {
    case 'release':
      return kernel.holdings.some(held => held.cell === '');
    case 'hibernate':
      return !isResting(kernel);
    case 'resume':
      return isResting(kernel);
    case 'ask':
      return true;
  }
}

/** Write what a kernel does; how long a wait may take is told where the server’s time is given. */
export function notebookState(
  store: LiveStore,
  kernelId: string,
  name: NameKernel,
  trans: ITranslate,
  now = Infinity
): INotebookState {
  const kernel = store.kernel(kernelId);
  if (kernel === null) {
    return { doing: 'unknown', text: '' };
  }
  if (isResting(kernel)) {
    return { doing: 'hibernated', text: trans('Hibernated') };
  }
  if (!kernel.answers) {
    return { doing: 'silent', text: trans('The kernel does not answer') };
  }
  if (kernel.rest !== 'awake' && kernel.rest !== '') {
    return { doing: 'hibernating', text: trans('Hibernating') };
  }
  const open = openCell(store, kernelId);
  if (open !== null) {
    return ofCell(store, open, name, now, trans);
  }
  return kernel.state === ''
    ? { doing: 'starting', text: trans('Starting') }
    : { doing: 'idle', text: trans('Idle') };
}

/** The cell that keeps the kernel busy: of several the one that is furthest. */
export function openCell(store: LiveStore, kernelId: string): IExecution | null {
  const order: IExecution['state'][] = ['running', 'moving', 'waiting', 'queued'];
  const open = [...store.cells(kernelId).values()].filter(one => one.state !== 'done');
  open.sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
  return open[0] ?? null;
}

function ofCell(
  store: LiveStore,
  cell: IExecution,
  name: NameKernel,
  now: number,
  trans: ITranslate
): INotebookState {
  switch (cell.state) {
    case 'waiting':
      return {
        doing: 'waiting',
        text: waitingText(cell, holder(store, cell.kernel_id, name, trans), now, trans)
      };
    case 'running': {
      const gpus = gpusInWords(cell.gpus, store.models, trans, cell);
      const parts = [trans('Running'), `${cell.replica} · ${cell.host}`, gpus];
      return { doing: 'running', text: parts.filter(part => part !== '').join(' · ') };
    }
    default:
      return { doing: 'running', text: trans('Getting ready') };
  }
}

/** Write what the status bar says: what the notebook does, else `last`, where its last cell ran, and what it keeps. */
export function statusLine(
  store: LiveStore,
  kernelId: string,
  last: string,
  name: NameKernel,
  trans: ITranslate,
  now = Infinity
): string {
  const { doing, text } = notebookState(store, kernelId, name, trans, now);
  if (doing !== 'unknown' && doing !== 'idle') {
    return text;
  }
  const kept = (store.kernel(kernelId)?.holdings ?? []).map(held =>
    trans('%1 kept', gpusCounted(held.part || held.gpus.length, trans))
  );
  return [last, ...kept].join(' · ');
}
