// Where one of a kernel's replicas can be moved to, and how a move stands. Pure.
// Law: a host is offered only if it is up and has no replica of the kernel; the scheduler has the last word.
import type { IHost, IKernel, IMove } from '../generated/live';
import { useOf } from './cluster.js';
import type { ITranslate } from './line';

/** A host that a replica can be moved to. */
export interface ITarget {
  host: string;
  /** For people: its name, and how many of its GPUs are free. */
  label: string;
}

/** The hosts that a replica of a kernel can be moved to, in the order given. */
export function targets(kernel: IKernel, hosts: readonly IHost[], trans: ITranslate): ITarget[] {
  const taken = new Set(kernel.replicas.map(replica => replica.host));
  return hosts
    .filter(host => host.state === 'up' && !taken.has(host.name))
    .map(host => ({ host: host.name, label: labelOf(host, trans) }));
}

function labelOf(host: IHost, trans: ITranslate): string {
  if (host.gpus.length === 0) {
    return trans('%1 (no GPUs)', host.name);
  }
  const free = host.gpus.filter(gpu => useOf(host, gpu) === 'free').length;
  return trans('%1 (%2/%3 free)', host.name, free, host.gpus.length);
}

/** Whether a move is asked for or under way. */
export function moves(move: IMove | null): boolean {
  return move !== null && move.trouble === '';
}

/** Write how a move stands; empty where there is none. */
export function moveInWords(move: IMove | null, trans: ITranslate): string {
  if (move === null) {
    return '';
  }
  return move.trouble === ''
    ? trans('Moving a replica to %1 …', move.host)
    : trans('The replica could not move to %1: %2.', move.host, move.trouble.replace(/\.$/, ''));
}
