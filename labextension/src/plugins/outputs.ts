// Makes every notebook on a replicated kernel show what the kernel published while no page listened.
// It adds nothing to the page but outputs, and leaves notebooks on other kernels alone.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { CodeCell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

import { OutputsRestorer } from '../models/restorer';
import { KERNEL_NAME, PROVISIONER_NAME } from '../models/watcher';

function activate(app: JupyterFrontEnd, tracker: INotebookTracker): void {
  const restorers = new WeakMap<NotebookPanel['context'], OutputsRestorer>();

  const replicated = (kernel: Kernel.IKernelConnection): boolean => {
    const spec = app.serviceManager.kernelspecs.specs?.kernelspecs[kernel.name];
    const provisioner = spec?.metadata?.['kernel_provisioner'] as Record<string, unknown> | undefined;
    return kernel.name === KERNEL_NAME || provisioner?.['provisioner_name'] === PROVISIONER_NAME;
  };

  const watch = ({ context }: NotebookPanel): void => {
    if (restorers.has(context)) {
      return; // Another view of the same notebook.
    }
    const codeCells = (): CodeCell[] =>
      tracker
        .filter(panel => panel.context === context)
        .flatMap(panel => panel.content.widgets.filter(cell => cell.model.type === 'code') as CodeCell[]);
    restorers.set(context, new OutputsRestorer(context, { codeCells, replicated }));
  };

  tracker.forEach(watch);
  tracker.widgetAdded.connect((_, panel) => {
    watch(panel);
  });
}

/** Restores outputs; it has no part that people see. */
export const outputsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:outputs',
  description: 'Shows in notebooks what a replicated kernel published while no page listened.',
  autoStart: true,
  requires: [INotebookTracker],
  activate
};
