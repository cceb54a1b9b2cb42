// What a person may have done to a notebook's kernel from the panel: asked of its router, on the page's own
// connection. Holds no state; whatever is refused is rejected with the router's sentence.
import type { Kernel } from '@jupyterlab/services';

import { isPart } from './cluster.js';
import { ask } from './question';

/** Saving everything and stopping the replicas may take so long. */
const REST_MAX_MS = 90_000;
const GPUS_REQUEST = 'replkernel_gpus_request';

async function asked(
  kernel: Kernel.IKernelConnection,
  type: string,
  content: object,
  answerMaxMs?: number
): Promise<string> {
  const answer = (await ask(kernel, type, content, answerMaxMs)) as Record<string, unknown>;
  if (answer['status'] !== 'ok') {
    throw new Error(typeof answer['evalue'] === 'string' ? answer['evalue'] : `The kernel refused ${type}.`);
  }
  return typeof answer['text'] === 'string' ? answer['text'] : '';
}

/** Stop all of a kernel's processes; its state stays. */
export function hibernate(kernel: Kernel.IKernelConnection): Promise<string> {
  return asked(kernel, 'replkernel_hibernate_request', {}, REST_MAX_MS);
}

/** Resume a hibernated kernel: any question that needs a replica does. */
export async function resume(kernel: Kernel.IKernelConnection): Promise<string> {
  await kernel.requestIsComplete({ code: '' });
  return '';
}

/** Give the GPUs back that the notebook keeps between cells. */
export function release(kernel: Kernel.IKernelConnection): Promise<string> {
  return asked(kernel, GPUS_REQUEST, { verb: 'release' });
}

/** Cancel an execution that waits, with the cells behind it. No other execution is interrupted. */
export async function cancel(kernel: Kernel.IKernelConnection, msgId: string): Promise<string> {
  await asked(kernel, 'interrupt_request', { msg_id: msgId });
  return '';
}

/** Have one of the replicas moved to a host; how that goes is told with all else of the kernel. */
export async function migrate(kernel: Kernel.IKernelConnection, host: string): Promise<string> {
  await asked(kernel, GPUS_REQUEST, { verb: 'migrate', host });
  return '';
}

/** Have each cell of the notebook ask for GPUs from the next one on, unless it says otherwise; 0: for none. */
export function request(kernel: Kernel.IKernelConnection, gpus: number, vramGb: number): Promise<string> {
  const wanted = isPart(gpus) ? { gpus: 1, part: gpus } : { gpus };
  return asked(kernel, GPUS_REQUEST, { verb: 'default', ...wanted, vram_gb: vramGb });
}
