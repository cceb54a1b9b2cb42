// Shows for the notebook in front which replica ran its last cell, in the status bar and by a command.
// Neither runs anything in the user's namespace.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import { FactsTable } from '../components/factsTable';
import { StatusItem } from '../components/statusItem';
import { describe, summary } from '../models/facts';
import { kernelMark } from '../models/kernelMark';
import { statusLine } from '../models/notebookState';
import { isReplicated, nameBySession } from '../models/replicated';
import { SessionWatcher } from '../models/watcher';
import { ILive } from '../tokens';

/** The command that shows what is known about the current notebook's kernel. */
export const SHOW_STATUS = 'replkernel:show-status';

async function showStatus(watcher: SessionWatcher | null, trans: TranslationBundle): Promise<void> {
  let sentence = trans.__('This notebook runs on a kernel that is not replicated.');
  if (watcher?.replicated) {
    sentence =
      watcher.facts === null
        ? trans.__('No cell has run on this kernel since this page was opened or the kernel restarted.')
        : trans.__('As the last cell’s reply reported it:');
  }
  const rows = watcher?.facts ? describe(watcher.facts, message => trans.__(message)) : [];
  await showDialog({
    title: trans.__('Replicated kernel'),
    body: new FactsTable(sentence, rows),
    buttons: [Dialog.okButton({ label: trans.__('Close') })]
  });
}

function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  statusBar: IStatusBar | null,
  palette: ICommandPalette | null,
  translator: ITranslator | null,
  live: ILive | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const watchers = new WeakMap<NotebookPanel, SessionWatcher>();
  const item = new StatusItem();
  const name = nameBySession(app.serviceManager);
  const activeChanged = new Signal<StatusItem, void>(item);

  const current = (): SessionWatcher | null => {
    const panel = tracker.currentWidget;
    return panel === null ? null : (watchers.get(panel) ?? null);
  };

  const refresh = (): void => {
    const facts = current()?.facts ?? null;
    const kernelId = tracker.currentWidget?.sessionContext.session?.kernel?.id ?? '';
    const say = (message: string, ...values: (string | number)[]): string => trans.__(message, ...values);
    const last = summary(facts, say);
    const cells = tracker.currentWidget?.content.widgets ?? [];
    const hasCell = (id: string): boolean => cells.some(cell => cell.model.id === id);
    const now = live?.store.serverTime(Date.now() / 1000);
    item.setText(
      live === null ? last : statusLine(live.store, kernelId, last, name, say, now),
      live === null ? '' : kernelMark(live.store, kernelId, say, hasCell),
      trans.__('What this notebook does, where its last cell ran, and whether what cells changed is durable')
    );
    activeChanged.emit();
  };

  const watch = (panel: NotebookPanel): void => {
    const watcher = new SessionWatcher(panel.sessionContext, kernel =>
      isReplicated(kernel, app.serviceManager.kernelspecs)
    );
    watchers.set(panel, watcher);
    watcher.changed.connect(refresh);
  };

  live?.changed.connect((_, touched) => {
    if (
      touched.cluster ||
      touched.kernels.has(tracker.currentWidget?.sessionContext.session?.kernel?.id ?? '')
    ) {
      refresh();
    }
  });
  live?.interrupted.connect(refresh);
  tracker.forEach(watch);
  tracker.widgetAdded.connect((_, panel) => {
    watch(panel);
  });
  tracker.currentChanged.connect(refresh);
  refresh();

  statusBar?.registerStatusItem('@replkernel/labextension:status', {
    item,
    align: 'left',
    rank: 90,
    isActive: () => current()?.replicated ?? false,
    activeStateChanged: activeChanged
  });

  app.commands.addCommand(SHOW_STATUS, {
    label: args =>
      args['isPalette'] ? trans.__('Replicated kernel: show status') : trans.__('Kernel Status'),
    caption: trans.__('Show which replica ran the last cell, on which host'),
    isEnabled: () => tracker.currentWidget !== null,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => showStatus(current(), trans)
  });
  palette?.addItem({
    command: SHOW_STATUS,
    args: { isPalette: true },
    category: trans.__('Kernel Operations')
  });
}

/** The status bar item and the command. */
export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:status',
  description: 'Shows which replica of a replicated kernel ran the last cell, and on which host.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IStatusBar, ICommandPalette, ITranslator, ILive],
  activate
};
