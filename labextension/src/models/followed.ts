// Which process runs the cells of one notebook, as its debugger has seen it. Pure: no JupyterLab, no clock.
import type { IKernel } from '../generated/live';

/** The process that runs a kernel's cells, by its replica and number; empty while there is none. */
export function processOf(kernel: IKernel | null): string {
  const executor = kernel?.replicas.find(one => one.role === 'executor' && one.pid !== 0);
  return executor === undefined ? '' : `${executor.replica} ${executor.pid}`;
}

/** Keeps the process of the kernel that is followed. */
export class Followed {
  private _kernel = '';
  private _process = '';

  /** Take how a kernel is now, and say whether another process runs its cells than before; no id: none is followed. */
  isAnother(kernel: IKernel | null, id: string): boolean {
    const process = processOf(kernel);
    const another =
      id === this._kernel && this._process !== '' && process !== '' && process !== this._process;
    if (id !== this._kernel) {
      this._kernel = id;
      this._process = process;
    } else if (process !== '') {
      this._process = process;
    }
    return another;
  }
}
