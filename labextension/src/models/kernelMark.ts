// The mark of a whole notebook in the status bar: at rest, or how many of its cells are not durable. Pure.
import type { Translate } from './facts';
import type { LiveStore } from './live';

/** Write the mark, and whether it may not hold any more; empty while nothing is known. */
export function kernelMark(store: LiveStore, kernelId: string, trans: Translate): string {
  const mark = lastMark(store, kernelId, trans);
  const doubt = doubtInWords(store.doubt(kernelId), trans);
  return mark === '' || doubt === '' ? mark : `${mark} ${doubt}`;
}

/** Write why what is shown may not hold any more; empty when it does. */
export function doubtInWords(doubt: ReturnType<LiveStore['doubt']>, trans: Translate): string {
  switch (doubt) {
    case 'no connection':
      return trans('(no connection)');
    case 'no answer':
      return trans('(no answer)');
    case '':
      return '';
  }
}

function lastMark(store: LiveStore, kernelId: string, trans: Translate): string {
  const kernel = store.kernel(kernelId);
  if (kernel === null) {
    return '';
  }
  if (kernel.rest === 'asleep') {
    return trans('at rest');
  }
  const over = [...store.cells(kernelId).values()].filter(execution => execution.state === 'done');
  const lost = over.filter(execution => execution.safety === 'lost').length;
  if (lost > 0) {
    return `✖ ${lost} ${trans('not kept')}`;
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
