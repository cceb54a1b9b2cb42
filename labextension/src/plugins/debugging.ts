// The debugger goes on in the next process: when another one runs a notebook's cells, after a loss, a move or
// hibernation, it is switched on there as it was, with its breakpoints.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IDebugger } from '@jupyterlab/debugger';

import { Followed } from '../models/followed';
import { ILive } from '../tokens';

async function goOn(service: IDebugger): Promise<void> {
  await service.restoreState(true);
  if (service.isStarted && !service.hasStoppedThreads()) {
    await service.displayDefinedVariables();
  }
}

function activate(_app: JupyterFrontEnd, live: ILive, service: IDebugger | null): void {
  if (service === null) {
    return;
  }
  const followed = new Followed();
  live.changed.connect(() => {
    const id = service.isStarted ? (service.session?.connection?.kernel?.id ?? '') : '';
    if (followed.isAnother(live.store.kernel(id), id)) {
      goOn(service).catch((reason: unknown) => {
        console.warn('The debugger could not go on in the new process', reason);
      });
    }
  });
}

/** The debugger's part. */
export const debuggingPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:debugging',
  description: 'Switches the debugger on in the process that runs the cells from now on.',
  autoStart: true,
  requires: [ILive],
  optional: [IDebugger],
  activate
};
