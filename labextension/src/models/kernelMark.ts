// The mark of a whole notebook in the status bar: how many of its cells are not durable. Pure.
import type { IKernel } from '../generated/live';
import { doubtInWords } from './doubt.js';
import type { Translate } from './facts';
import type { LiveStore } from './live';
import { isResting } from './notebookState.js';

/** Write the mark, and whether what the status bar says may not hold any more; empty while nothing is known. */
export function kernelMark(store: LiveStore, kernelId: string, trans: Translate): string {
  const kernel = store.kernel(kernelId);
  if (kernel === null) {
    return '';
  }
  const mark = isResting(kernel) ? '' : lastMark(store, kernel, trans); // Hibernated, all is durable.
  const doubt = doubtInWords(store.doubt(kernelId), trans);
  return [mark, doubt].filter(part => part !== '').join(' ');
}

function lastMark(store: LiveStore, kernel: IKernel, trans: Translate): string {
  const over = [...store.cells(kernel.kernel_id).values()].filter(execution => execution.state === 'done');
  const lost = over.filter(execution => execution.safety === 'lost').length;
  if (lost > 0) {
    return `✖ ${lost === 1 ? trans('1 cell lost its changes') : `${lost} ${trans('cells lost their changes')}`}`;
  }
  const pending = over.filter(execution => execution.safety === 'pending').length;
  if (pending > 0) {
    return `● ${pending} ${trans('not durable yet')}`;
  }
  if (!over.some(execution => execution.safety === 'durable')) {
    return '';
  }
  const pinned = new Set(kernel.replicas.flatMap(replica => replica.pins.map(pin => pin.name))).size;
  const rest = pinned === 0 ? '' : `, ${trans('but for what is pinned')} (${pinned})`;
  return `✔ ${trans('durable')}${rest}`;
}
