// Makes every notebook on a replicated kernel show what the kernel published while no page listened.
// It adds nothing to the page but outputs, and leaves notebooks on other kernels alone.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { CodeCell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

import { isReplicated } from '../models/replicated';
import { OutputsRestorer } from '../models/restorer';

function activate(app: JupyterFrontEnd, tracker: INotebookTracker): void {
  const restorers = new WeakMap<NotebookPanel['context'], OutputsRestorer>();

  const replicated = (kernel: Kernel.IKernelConnection): boolean =>
    isReplicated(kernel, app.serviceManager.kernelspecs);

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
