// How a kernel's replicas are, in one line. Pure.
import type { IKernel, IReplica } from '../generated/live';
import type { ITranslate } from './line';

const WELL = ['executor', 'standby', 'dormant'];

/** Tell whether a replica can run cells, or will as soon as there is one. */
export function isWell(replica: IReplica): boolean {
  return WELL.includes(replica.role);
}

/** Write how many replicas are healthy, and whether they are in sync. */
export function replicasInWords(kernel: IKernel, trans: ITranslate): string {
  // What replicas report is some seconds old: who runs cells is known before.
  const well = kernel.replicas.filter(one => isWell(one) || one.replica === kernel.executor);
  if (well.length === 0) {
    return trans('none is ready yet');
  }
  const behind = well.filter(replica => replica.lag > 0).length;
  const healthy = trans('%1 of %2 healthy', well.length, kernel.replicas.length);
  return behind === 0 ? trans('%1, in sync', healthy) : trans('%1, %2 catching up', healthy, behind);
}
