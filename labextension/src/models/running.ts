// What the Running panel lists of replicated kernels: those that run, and those at rest. Pure.
// Law: a kernel that another server of the user serves is not listed; nothing is deleted that is not at rest.
import type { IKernel } from '../generated/live';
import type { ITranslate } from './line';

/** One kernel in the list. */
export interface IListed {
  kernelId: string;
  name: string;
  /** The notebook's path; empty where no session is known. */
  path: string;
  detail: string;
  /** Everything, for the tooltip. */
  title: string;
}

/** The two lists. */
export interface ILists {
  running: IListed[];
  resting: IListed[];
}

/** Names a kernel by its session; null where there is none. */
export type SessionOf = (kernelId: string) => { name: string; path: string } | null;

/** Tell whether a kernel is at rest. */
export function isResting(kernel: IKernel): boolean {
  return kernel.rest === 'asleep' || (kernel.state === 'hibernated' && kernel.rest === '');
}

/** List the kernels, by their names. */
export function list(kernels: readonly IKernel[], sessionOf: SessionOf, trans: ITranslate): ILists {
  const lists: ILists = { running: [], resting: [] };
  for (const kernel of kernels) {
    const resting = isResting(kernel);
    if (!kernel.served && !(resting && !kernel.routed)) {
      continue;
    }
    const session = sessionOf(kernel.kernel_id);
    const place = kernel.cwd === '' ? '' : ` · ${kernel.cwd}`;
    (resting ? lists.resting : lists.running).push({
      kernelId: kernel.kernel_id,
      name: session?.name ?? trans('Kernel %1', kernel.kernel_id.slice(0, 8)) + place,
      path: session?.path ?? '',
      ...(resting ? { detail: trans('at rest'), title: kernel.kernel_id } : saidOf(kernel, trans))
    });
  }
  for (const one of [lists.running, lists.resting]) {
    one.sort((a, b) => a.name.localeCompare(b.name));
  }
  return lists;
}

function saidOf(kernel: IKernel, trans: ITranslate): { detail: string; title: string } {
  const well = kernel.replicas.filter(one => one.role === 'executor' || one.role === 'standby').length;
  const gpus = kernel.holdings.reduce((sum, held) => sum + held.gpus.length, 0);
  const state = kernel.answers ? kernel.state || trans('starting') : trans('does not answer');
  const held = gpus === 1 ? trans('1 GPU') : trans('%1 GPUs', gpus);
  const parts = [state, well === 1 ? trans('1 replica') : trans('%1 replicas', well), held];
  return { detail: gpus === 0 ? state : held, title: parts.join(' · ') };
}
