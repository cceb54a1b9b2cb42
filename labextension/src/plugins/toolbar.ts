// A GPU chooser in the toolbar of each notebook, beside the kernel's name. On other kernels it shows nothing.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { DocumentRegistry } from '@jupyterlab/docregistry';
import type { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { IDisposable } from '@lumino/disposable';
import { DisposableDelegate } from '@lumino/disposable';

import { GpuChooser } from '../components/gpuChooser';
import { isReplicated } from '../models/replicated';
import { ChooserSource } from '../models/toolbar';
import { ILive } from '../tokens';

const NAME = 'replkernel-gpus';
const BESIDE = 'kernelName';

class ChooserExtension implements DocumentRegistry.IWidgetExtension<NotebookPanel, INotebookModel> {
  constructor(private readonly _make: (panel: NotebookPanel) => ChooserSource) {}

  createNew(panel: NotebookPanel): IDisposable {
    const source = this._make(panel);
    const chooser = new GpuChooser(source);
    if (!panel.toolbar.insertBefore(BESIDE, NAME, chooser)) {
      panel.toolbar.addItem(NAME, chooser);
    }
    return new DisposableDelegate(() => {
      source.dispose();
      chooser.dispose();
    });
  }
}

function activate(app: JupyterFrontEnd, live: ILive, translator: ITranslator | null): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  app.docRegistry.addWidgetExtension(
    'Notebook',
    new ChooserExtension(
      panel =>
        new ChooserSource(
          panel,
          live,
          kernel => isReplicated(kernel, app.serviceManager.kernelspecs),
          (message, ...values) => trans.__(message, ...values)
        )
    )
  );
}

/** The chooser. */
export const toolbarPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:toolbar',
  description: 'Lets people choose in a notebook’s toolbar how many GPUs its cells get.',
  autoStart: true,
  requires: [ILive],
  optional: [ITranslator],
  activate
};
