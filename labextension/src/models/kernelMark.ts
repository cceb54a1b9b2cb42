// The mark of a whole notebook in the status bar: how many of its cells are not durable. Pure.
import type { IExecution, IKernel } from '../generated/live';
import { doubtInWords } from './doubt.js';
import type { Translate } from './facts';
import type { LiveStore } from './live';
import { LOST } from './news.js';
import { isResting } from './notebookState.js';

/** Write the mark, and whether what the status bar says may not hold any more; empty while nothing is known.
 *
 * `has` tells whether the notebook still has a cell: one that is gone cannot be run again.
 */
export function kernelMark(
  store: LiveStore,
  kernelId: string,
  trans: Translate,
  has: (cellId: string) => boolean = () => true
): string {
  const kernel = store.kernel(kernelId);
  if (kernel === null) {
    return '';
  }
  const mark = isResting(kernel) ? '' : lastMark(store, kernel, has, trans); // Hibernated, all is durable.
  const doubt = doubtInWords(store.doubt(kernelId), trans);
  return [mark, doubt].filter(part => part !== '').join(' ');
}

/** Whether a cell failed as its process died, and others have been durable since: its own error says enough. */
function isPast(execution: IExecution, newest: number): boolean {
  return execution.ename === LOST && (execution.ended_at ?? Infinity) < newest;
}

/** Tell whether all that a kernel's cells have changed is known to be durable, pinned variables included; where no cell is known nothing is. */
export function isSafe(store: LiveStore, kernelId: string): boolean {
  const kernel = store.kernel(kernelId);
  const cells = [...store.cells(kernelId).values()];
  return (
    kernel !== null &&
    cells.length > 0 &&
    kernel.replicas.every(replica => replica.pins.length === 0) &&
    cells.every(one => one.state === 'done' && one.safety !== 'pending' && one.safety !== 'lost')
  );
}

function lostInWords(cells: number, trans: Translate): string {
  return cells === 1 ? trans('1 cell lost its changes') : `${cells} ${trans('cells lost their changes')}`;
}

function lastMark(
  store: LiveStore,
  kernel: IKernel,
  has: (cellId: string) => boolean,
  trans: Translate
): string {
  const all = [...store.cells(kernel.kernel_id).values()];
  const over = all.filter(execution => execution.state === 'done');
  const durable = over.filter(execution => execution.safety === 'durable');
  const newest = Math.max(-Infinity, ...durable.map(execution => execution.ended_at ?? -Infinity));
  const lost = over.filter(one => one.safety === 'lost' && has(one.cell_id) && !isPast(one, newest)).length;
  if (lost > 0) {
    return `✖ ${lostInWords(lost, trans)}`;
  }
  const pending = over.filter(execution => execution.safety === 'pending').length;
  if (pending > 0) {
    return `● ${pending} ${trans('not durable yet')}`;
  }
  if (durable.length === 0 || over.length < all.length) {
    return ''; // Beside "Running" it would be read as said of the cell that runs.
  }
  const pinned = new Set(kernel.replicas.flatMap(replica => replica.pins.map(pin => pin.name))).size;
  const rest = pinned === 0 ? '' : `, ${trans('but for what is pinned')} (${pinned})`;
  // What its error says too is no alarm any more, but its line still says so.
  const past = over.filter(one => one.safety === 'lost' && has(one.cell_id)).length;
  const but = past === 0 ? '' : `, ${lostInWords(past, trans)}`;
  return `✔ ${trans('durable')}${rest}${but}`;
}
