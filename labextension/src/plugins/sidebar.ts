// The panel at the side, and the command that shows it.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { gpuIcon } from '../components/panelIcon';
import { Sidebar } from '../components/sidebar';
import type { IHistoryPart } from '../components/historySection';
import type { INotebookInFront } from '../components/sidebarBody';
import { cancel, hibernate, migrate, release, request, resume } from '../models/actions';
import { gpuLine, readCellRequest, writeCellRequest } from '../models/cellRequest';
import { isReplicated, nameBySession } from '../models/replicated';
import { IHistories, ILive } from '../tokens';

/** The command that shows the panel. */
export const SHOW_PANEL = 'replkernel:show-panel';
/** The command that shows its list of points. */
export const SHOW_HISTORY = 'replkernel:show-history';
const PANEL_ID = 'jp-replkernel-sidebar';
/** Third-party panels stand between 501 and 899. */
const RANK = 610;

function historyOf(kernelId: string, histories: IHistories): IHistoryPart {
  return {
    document: histories.of(kernelId),
    trouble: histories.trouble(kernelId),
    actions: {
      travel: (way, to) => histories.travel(kernelId, way, to),
      mark: (name, point) => histories.mark(kernelId, name, point),
      unmark: name => histories.unmark(kernelId, name),
      branch: name => histories.branch(kernelId, name),
      compare: (one, other) => histories.compare(kernelId, one, other),
      fork: point => histories.fork(kernelId, point)
    }
  };
}

function inFront(
  tracker: INotebookTracker,
  app: JupyterFrontEnd,
  histories: IHistories
): INotebookInFront | null {
  const panel = tracker.currentWidget;
  const kernel = panel?.sessionContext.session?.kernel;
  if (!panel || !kernel || !isReplicated(kernel, app.serviceManager.kernelspecs)) {
    return null;
  }
  const active = panel.content.activeCell?.model;
  const cell = active?.type === 'code' ? active : null;
  const act = (action: (kernel: Kernel.IKernelConnection) => Promise<string>) => () => action(kernel);
  return {
    name: panel.title.label,
    kernelId: kernel.id,
    actions: {
      hibernate: act(hibernate),
      resume: act(resume),
      release: act(release),
      cancel: msgId => cancel(kernel, msgId),
      migrate: host => migrate(kernel, host),
      request: (gpus, vramGb) => request(kernel, gpus, vramGb),
      setCell: wanted => {
        if (cell) {
          writeCellRequest(cell, wanted);
        }
      }
    },
    history: historyOf(kernel.id, histories),
    cell: cell
      ? { id: cell.id, written: gpuLine(cell.sharedModel.getSource()), ...readCellRequest(cell) }
      : null
  };
}

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  histories: IHistories,
  tracker: INotebookTracker,
  restorer: ILayoutRestorer | null,
  palette: ICommandPalette | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const panel = new Sidebar({
    connection: live,
    notebook: () => inFront(tracker, app, histories),
    follow: histories.follow(),
    nameKernel: nameBySession(app.serviceManager),
    trans: (message, ...values) => trans.__(message, ...values)
  });
  panel.id = PANEL_ID;
  panel.title.icon = gpuIcon;
  panel.title.caption = trans.__('GPUs and replicas');
  panel.node.setAttribute('role', 'region');
  panel.node.setAttribute('aria-label', trans.__('GPUs and replicas'));
  app.shell.add(panel, 'right', { rank: RANK, type: 'GPUs and replicas' });
  restorer?.add(panel, PANEL_ID);
  for (const signal of [tracker.currentChanged, tracker.activeCellChanged]) {
    signal.connect(() => {
      panel.refresh();
    });
  }

  histories.changed.connect(() => {
    panel.refresh();
  });

  app.commands.addCommand(SHOW_HISTORY, {
    label: args =>
      args['isPalette'] ? trans.__('Replicated kernel: show history') : trans.__('Show History'),
    caption: trans.__('Show the points that this notebook can go back to'),
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => {
      app.shell.activateById(PANEL_ID);
      panel.focusHistory();
    }
  });
  app.commands.addCommand(SHOW_PANEL, {
    label: args =>
      args['isPalette']
        ? trans.__('Replicated kernel: show GPUs and replicas')
        : trans.__('Show GPUs and Replicas'),
    caption: trans.__('Show the panel with this notebook’s GPUs and replicas, and the cluster’s GPUs'),
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => {
      app.shell.activateById(PANEL_ID);
    }
  });
  for (const command of [SHOW_PANEL, SHOW_HISTORY]) {
    palette?.addItem({ command, args: { isPalette: true }, category: trans.__('Kernel Operations') });
  }
}

/** The panel. */
export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:sidebar',
  description: 'A panel with the GPUs and replicas of the notebook in front, the cluster, and one’s account.',
  autoStart: true,
  requires: [ILive, IHistories, INotebookTracker],
  optional: [ILayoutRestorer, ICommandPalette, ITranslator],
  activate
};
