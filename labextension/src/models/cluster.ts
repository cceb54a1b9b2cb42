// What the panel says of hosts and their GPUs, and which rows of a long list are to be drawn. Pure.
// Law: a GPU's state is a letter and a word, never a colour alone.
import type { IGpu, IHost, ILease, IWaiting } from '../generated/live';
import type { ITranslate } from './line';

/** What a GPU does, for people. */
export type GpuUse = 'free' | 'used' | 'kept' | 'asked' | 'away';

/** The letter in a GPU's box; a free one has none. */
export const LETTERS: Record<GpuUse, string> = { free: '', used: 'U', kept: 'K', asked: 'R', away: '×' };

/** Tell what a GPU of a host does. */
export function useOf(host: IHost, gpu: IGpu): GpuUse {
  if (host.state !== 'up' && host.state !== 'draining') {
    return 'away';
  }
  switch (gpu.state) {
    case '':
    case 'idle':
      return 'free';
    case 'lingering':
      return 'kept';
    case 'reclaiming':
      return 'asked';
    default:
      return 'used';
  }
}

/** The word for what a GPU does. */
export function useInWords(use: GpuUse, trans: ITranslate): string {
  switch (use) {
    case 'free':
      return trans('free');
    case 'used':
      return trans('in use');
    case 'kept':
      return trans('kept between cells');
    case 'asked':
      return trans('asked back');
    case 'away':
      return trans('out of reach');
  }
}

/** Names a kernel for people: its notebook, if that is open here; else nothing. */
export type NameKernel = (kernelId: string) => string;

/** Name whose a lease or a request is: the notebook, and the user where that is another. */
export function whose(one: ILease | IWaiting, name: NameKernel, trans: ITranslate): string {
  const open = one.yours ? name(one.kernel_id) : '';
  const known = open || (one.notebook.split('/').pop() ?? '') || trans('another notebook');
  return one.yours || one.user === '' ? known : trans('%1 of %2', known, one.user);
}

/** How many GPUs do what. */
export type Counts = Record<GpuUse, number>;

/** Count the GPUs of hosts by what they do. */
export function count(hosts: readonly IHost[]): Counts {
  const counts: Counts = { free: 0, used: 0, kept: 0, asked: 0, away: 0 };
  for (const host of hosts) {
    for (const gpu of host.gpus) {
      counts[useOf(host, gpu)] += 1;
    }
  }
  return counts;
}

/** Write counts that are not zero: `3 free, 5 in use`. */
export function countsInWords(counts: Counts, trans: ITranslate): string {
  const uses = Object.keys(counts) as GpuUse[];
  const told = uses.filter(use => counts[use] > 0).map(use => `${counts[use]} ${useInWords(use, trans)}`);
  return told.length === 0 ? trans('no GPUs') : told.join(', ');
}

/** The rows of a list that are to be drawn. */
export interface IWindow {
  first: number;
  /** Behind the last. */
  end: number;
}

/** Tell which of `count` rows of one height are seen, and some more on both sides. */
export function rowsSeen(scrollTop: number, height: number, rowHeight: number, count: number): IWindow {
  const more = 4;
  const first = Math.max(0, Math.min(Math.floor(scrollTop / rowHeight) - more, count));
  const end = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + more);
  return { first, end: Math.max(first, end) };
}
