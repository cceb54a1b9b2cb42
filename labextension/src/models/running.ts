// What the Running panel lists of replicated kernels: those that run, and hibernated ones. Pure.
// Law: a kernel that another server of the user serves is not listed; nothing is deleted that is not hibernated.
import type { IKernel } from '../generated/live';
import { gpusCounted } from './cluster.js';
import { formatAge, formatBytes } from './facts.js';
import type { ITranslate } from './line';
import type { LiveStore } from './live';
import { isResting, notebookState } from './notebookState.js';
import { replicasInWords } from './replicasInWords.js';

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

/** List the kernels at a Unix time, by their names; `ours` are those of this server, also ones that nobody tells of yet. */
export function list(
  store: LiveStore,
  sessionOf: SessionOf,
  now: number,
  trans: ITranslate,
  ours: readonly string[] = []
): ILists {
  const lists: ILists = { running: [], resting: [] };
  for (const kernel of store.kernels) {
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
      ...(resting ? restOf(kernel, now, trans) : saidOf(store, kernel, sessionOf, now, trans))
    });
  }
  for (const kernelId of ours.filter(name => store.kernel(name) === null)) {
    const session = sessionOf(kernelId);
    lists.running.push({
      kernelId,
      name: session?.name ?? trans('Kernel %1', kernelId.slice(0, 8)),
      path: session?.path ?? '',
      detail: '',
      title: kernelId
    });
  }
  for (const one of [lists.running, lists.resting]) {
    one.sort((a, b) => a.name.localeCompare(b.name));
  }
  return lists;
}

function restOf(kernel: IKernel, now: number, trans: ITranslate): { detail: string; title: string } {
  const size = kernel.state_bytes === 0 ? [] : [formatBytes(kernel.state_bytes)];
  const since = kernel.rested === 0 ? [] : [formatAge(now - kernel.rested, trans)];
  const detail = [...size, ...since].join(' · ');
  const title = since.map(age => trans('Hibernated for %1', age)).concat(size, kernel.kernel_id);
  return { detail: detail === '' ? trans('hibernated') : detail, title: title.join(' · ') };
}

function saidOf(
  store: LiveStore,
  kernel: IKernel,
  sessionOf: SessionOf,
  now: number,
  trans: ITranslate
): { detail: string; title: string } {
  const name = (kernelId: string): string => sessionOf(kernelId)?.name ?? '';
  const { text } = notebookState(store, kernel.kernel_id, name, trans);
  const gpus = kernel.holdings.reduce((sum, held) => sum + (held.part || held.gpus.length), 0);
  const held = gpusCounted(gpus, trans);
  const bytes = Math.max(0, ...kernel.replicas.map(replica => replica.state_bytes));
  const age = kernel.began === 0 ? [] : [formatAge(now - kernel.began, trans)];
  const began = age.map(ago => trans('started %1 ago', ago));
  const parts = [text, replicasInWords(kernel, trans), held, formatBytes(bytes), ...began];
  const shown = [gpus === 0 ? text : held, ...(bytes === 0 ? [] : [formatBytes(bytes)]), ...age];
  return { detail: shown.join(' · '), title: parts.join(' · ') };
}
