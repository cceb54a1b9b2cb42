// What the panel says of hosts and their GPUs, and which rows of a long list are to be drawn. Pure.
// Law: a GPU's state is a letter and a word, never a colour alone.
import type { IBooked, IGpu, IHost, ILease, IWaiting } from '../generated/live';
import type { ITranslate } from './line';
import type { LiveStore } from './live';

/** What a GPU does, for people. */
export type GpuUse = 'free' | 'used' | 'kept' | 'job' | 'asked' | 'away';

/** The letter in a GPU's box; a free one has none. */
export const LETTERS: Record<GpuUse, string> = {
  free: '',
  used: 'U',
  kept: 'K',
  job: 'J',
  asked: 'R',
  away: '×'
};

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
    case 'job':
      return 'job';
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
    case 'job':
      return trans('used by a job');
    case 'asked':
      return trans('asked back');
    case 'away':
      return trans('out of reach');
  }
}

/** Names a kernel for people: its notebook, if that is open here; else nothing. */
export type NameKernel = (kernelId: string) => string;

const OF_JOBS = /^job\.(.+)\.\d+$/;

/** The job whose a lease is, by what stands in the place of its kernel; empty for a kernel's. */
export function jobOf(kernelId: string): string {
  return OF_JOBS.exec(kernelId)?.[1] ?? '';
}

/** Name whose a lease or a request is: the notebook, and the user where that is another. */
export function whose(one: ILease | IWaiting, name: NameKernel, trans: ITranslate): string {
  const job = jobOf(one.kernel_id);
  const open = one.yours ? name(one.kernel_id) : '';
  const known =
    (job === '' ? '' : trans('job %1', job)) ||
    open ||
    (one.notebook.split('/').pop() ?? '') ||
    trans('another notebook');
  return one.yours || one.user === '' ? known : trans('%1 of %2', known, one.user);
}

const NAMED_MAX = 2;

/** Name who holds the GPUs that a kernel's cell waits for, as far as one may see; empty when nobody does. */
export function holder(store: LiveStore, kernelId: string, name: NameKernel, trans: ITranslate): string {
  const others = store.leases.filter(lease => lease.kernel_id !== kernelId);
  const names = [...new Set(others.map(lease => whose(lease, name, trans)))];
  if (names.length > NAMED_MAX) {
    return trans('%1 notebooks', names.length);
  }
  if (names.length === 0 && store.hosts.some(host => host.gpus.some(gpu => isStrangers(host, gpu)))) {
    return trans('another user');
  }
  return names.join(trans(' and '));
}

/** Tell whether a GPU is held by somebody of whom one may see nothing. */
export function isStrangers(host: IHost, gpu: IGpu): boolean {
  return gpu.lease === '' && ['used', 'kept', 'job', 'asked'].includes(useOf(host, gpu));
}

const GPUS_USUAL = 8;
const GPUS_OFFERED_MAX = 64;

/** How many GPUs a cell may have at most: as many as one host has; where none has any, the usual number.
 *
 * Before the first host is known it is one: what is offered grows then, and nothing that was offered goes.
 */
export function mostGpus(hosts: readonly IHost[]): number {
  if (hosts.length === 0) {
    return 1;
  }
  const most = Math.max(0, ...hosts.map(host => host.gpus.length));
  return most === 0 ? GPUS_USUAL : Math.min(GPUS_OFFERED_MAX, most);
}

const PARTS = [0.25, 0.5];
const FRACTIONS = new Map([
  [0.25, '¼'],
  [0.5, '½'],
  [0.75, '¾']
]);

/** The numbers of GPUs that are offered, parts of one among them; also what holds now, whatever that is. */
export function gpuChoices(now: number | null, most: number): number[] {
  const whole = Array.from({ length: most + 1 }, (_, number) => number);
  const offered = [0, ...PARTS, ...whole.slice(1)];
  return now === null || offered.includes(now) ? offered : [...offered, now];
}

/** The numbers that are offered, as people read them. */
export function choicesInWords(now: number | null, most: number, trans: ITranslate): Map<string, number> {
  return new Map(gpuChoices(now, most).map(number => [gpusWanted(number, 0, trans), number]));
}

/** Tell whether a number of GPUs is a part of one. */
export function isPart(gpus: number): boolean {
  return gpus > 0 && gpus < 1;
}

/** Write a number of GPUs: `2`, or `½` of a part of one. */
export function numberOfGpus(gpus: number): string {
  return FRACTIONS.get(gpus) ?? String(gpus);
}

/** Write how many GPUs: `2 GPUs`, or `½ GPU` of a part of one. */
export function gpusCounted(gpus: number, trans: ITranslate): string {
  if (isPart(gpus)) {
    return trans('%1 GPU', numberOfGpus(gpus));
  }
  return gpus === 1 ? trans('1 GPU') : trans('%1 GPUs', gpus);
}

/** Write how many GPUs, and what each must have: `2 GPUs of 20 GiB or more`, `½ GPU · 8 GiB`. */
export function gpusWanted(gpus: number, vramGb: number, trans: ITranslate): string {
  if (gpus === 0) {
    return trans('No GPU');
  }
  const count = gpusCounted(gpus, trans);
  if (vramGb > 0 && isPart(gpus)) {
    return `${count} · ${vramGb} GiB`;
  }
  return vramGb > 0 ? trans('%1 of %2 GiB or more', count, vramGb) : count;
}

/** How many GPUs do what. */
export type Counts = Record<GpuUse, number>;

/** Count the GPUs of hosts by what they do. */
export function count(hosts: readonly IHost[]): Counts {
  const counts: Counts = {
    free: 0,
    used: 0,
    kept: 0,
    job: 0,
    asked: 0,
    away: 0
  };
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

/** Write what is booked: how many GPUs, for whom, from when until when (local time), and how many are ready. */
export function bookedInWords(one: IBooked, trans: ITranslate): string {
  const model = one.model === '' ? '' : `${one.model} `;
  const gpus = `${numberOfGpus(one.gpus)} ${model}${one.gpus === 1 ? trans('GPU') : trans('GPUs')}`;
  const when = trans('%1 to %2', momentInWords(one.begins), momentInWords(one.ends));
  const line = trans('Booked: %1 for %2, %3', gpus, one.whom, when);
  return one.ready === null ? line : `${line} · ${trans('%1 ready', one.ready)}`;
}

/** Write a Unix time as people here do. */
function momentInWords(at: number): string {
  const short = { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' } as const;
  return new Date(at * 1000).toLocaleString(undefined, short);
}
