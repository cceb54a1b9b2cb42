// Who holds which GPUs now, and which cells wait for some: the rows that panel and dashboard show. Pure.
// Law: of others it says what the server has told, never more; what a notebook's own line says, it says too.
import type { IAccount, IExecution, IHost, ILease, IWaiting } from '../generated/live';
import { gpusCounted, holder, isStrangers, useInWords, useOf, whose } from './cluster.js';
import type { GpuUse, NameKernel } from './cluster';
import { gpusInWords, placeInWords } from './line.js';
import type { ITranslate } from './line';
import type { LiveStore } from './live';

/** GPUs of one host that one holder has. */
export interface IHeld {
  key: string;
  who: string;
  gpus: string;
  host: string;
  /** What they do. */
  use: string;
  /** The Unix time from which on they are held; 0: nobody tells. */
  since: number;
  /** What that has cost so far; null: nobody tells. */
  gpuHours: number | null;
}

/** A cell that waits. */
export interface IWait {
  key: string;
  who: string;
  gpus: string;
  /** Its place and how long it may wait still; empty where nobody tells. */
  place: string;
  /** Who holds what it waits for; empty where nobody does, or nobody tells. */
  holder: string;
  since: number;
}

const HOUR_S = 3600;

/** Tell who holds GPUs at the server's Unix time `now`: one's own first, the longest first. */
export function heldNow(store: LiveStore, now: number, name: NameKernel, trans: ITranslate): IHeld[] {
  const uses = new Map<string, GpuUse>();
  for (const host of store.hosts) {
    host.gpus.forEach(gpu => uses.set(gpu.lease, useOf(host, gpu)));
  }
  const told = store.leases.filter(lease => lease.gpus.length > 0);
  const ordered = [...told].sort((a, b) => Number(b.yours) - Number(a.yours) || a.since - b.since);
  return [
    ...ordered.map(lease => ofLease(store, lease, uses.get(lease.lease) ?? 'used', now, name, trans)),
    ...store.hosts.flatMap(host => ofStrangers(host, trans))
  ];
}

function ofLease(
  store: LiveStore,
  lease: ILease,
  use: GpuUse,
  now: number,
  name: NameKernel,
  trans: ITranslate
): IHeld {
  const { since, gpus, host } = lease;
  return {
    key: lease.lease,
    who: whose(lease, name, trans),
    gpus: gpusInWords(gpus, store.models, trans, lease),
    host,
    use: useInWords(use, trans),
    since,
    gpuHours: since === 0 ? null : hoursOf(lease, now)
  };
}

/** The GPU-hours of a lease until now, those between cells among them. */
function hoursOf({ since, part, gpus }: ILease, now: number): number {
  return since === 0 ? 0 : ((part || gpus.length) * Math.max(0, now - since)) / HOUR_S;
}

/** One's GPU-hours until now: those of leases that ended, and of those that are held. */
export function hoursUsed(account: IAccount, leases: readonly ILease[], now: number): number {
  const own = leases.filter(lease => lease.yours);
  const held = own.reduce((sum, lease) => sum + hoursOf(lease, now), 0);
  return Math.max(account.gpu_hours_month, account.gpu_hours + held);
}

/** GPUs of whose holder one may see nothing, by what they do. */
function ofStrangers(host: IHost, trans: ITranslate): IHeld[] {
  const theirs = host.gpus.filter(gpu => isStrangers(host, gpu));
  const models = new Map(theirs.map(gpu => [gpu.uuid, gpu.model]));
  return [...new Set(theirs.map(gpu => useOf(host, gpu)))].map(use => {
    const gpus = theirs.filter(gpu => useOf(host, gpu) === use).map(gpu => gpu.uuid);
    return {
      key: `${host.name}/${use}`,
      who: trans('another user'),
      gpus: gpusInWords(gpus, models, trans),
      host: host.name,
      use: useInWords(use, trans),
      since: 0,
      gpuHours: null
    };
  });
}

/** Tell which cells wait, in the order of the queue. */
export function waitsNow(store: LiveStore, now: number, name: NameKernel, trans: ITranslate): IWait[] {
  const cells = new Map<string, IExecution[]>();
  return store.queue.map(one => {
    const of = cells.get(one.kernel_id) ?? waitingCells(store, one.kernel_id);
    cells.set(one.kernel_id, of);
    const at = of.findIndex(cell => cell.wanted === one.gpus);
    const [cell] = at < 0 ? [] : of.splice(at, 1);
    return {
      key: one.request,
      who: whose(one, name, trans),
      gpus: gpusCounted(one.gpus, trans),
      holder: holder(store, one.kernel_id, name, trans),
      ...placeOf(one, cell, now, trans)
    };
  });
}

/** A kernel's cells that have a place in the queue, the first in it first; each answers to one request. */
function waitingCells(store: LiveStore, kernelId: string): IExecution[] {
  return [...store.cells(kernelId).values()]
    .filter(cell => cell.state === 'waiting' && cell.position !== null && cell.trouble === '')
    .sort((a, b) => (a.position ?? 0) - (b.position ?? 0) || (a.wished_at ?? 0) - (b.wished_at ?? 0));
}

/** What the cell's own line says, where the page knows the cell; else what the scheduler says. */
function placeOf(
  one: IWaiting,
  cell: IExecution | undefined,
  now: number,
  trans: ITranslate
): { place: string; since: number } {
  if (cell !== undefined) {
    return { place: placeInWords(cell, now, trans), since: cell.wished_at ?? one.since };
  }
  const told = { position: one.position || null, estimate_s: one.estimate_s, told_at: null };
  return { place: placeInWords(told, now, trans), since: one.since };
}
