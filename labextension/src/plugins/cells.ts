// A line under each cell that has run on a replicated kernel. Notebooks on other kernels are left alone.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { DisposableDelegate } from '@lumino/disposable';

import { NotebookLines } from '../models/lines';
import { isReplicated, nameBySession } from '../models/replicated';
import { IHistories, ILive, ISettings } from '../tokens';

class LinesExtension implements DocumentRegistry.IWidgetExtension<NotebookPanel, INotebookModel> {
  constructor(private readonly _make: (panel: NotebookPanel) => NotebookLines) {}

  createNew(panel: NotebookPanel): IDisposable {
    const lines = this._make(panel);
    return new DisposableDelegate(() => {
      lines.dispose();
    });
  }
}

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  histories: IHistories,
  settings: ISettings,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  app.docRegistry.addWidgetExtension(
    'Notebook',
    new LinesExtension(
      panel =>
        new NotebookLines(
          panel,
          live,
          histories,
          settings,
          kernel => isReplicated(kernel, app.serviceManager.kernelspecs),
          nameBySession(app.serviceManager),
          app.serviceManager.serverSettings.baseUrl,
          (message, ...values) => trans.__(message, ...values)
        )
    )
  );
}

/** The lines under cells. */
export const cellsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:cells',
  description: 'Shows under each cell who ran it, on which GPUs, what it waits for, and whether it is safe.',
  autoStart: true,
  requires: [ILive, IHistories, ISettings],
  optional: [ITranslator],
  activate
};
