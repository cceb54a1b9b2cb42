// Tells in JupyterLab's notifications what is worth it. It listens to what the page hears anyway, and asks nothing.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { LOST, News } from '../models/news';
import { nameBySession } from '../models/replicated';
import { ILive, ISettings } from '../tokens';
import { SHOW_PANEL } from './sidebar';

const SHOWN_MS = 8_000;

/** Run the cells of a kernel's open notebook again whose process died under them. */
function runLost(tracker: INotebookTracker | null, live: ILive, kernelId: string): void {
  const panel = tracker?.find(one => one.sessionContext.session?.kernel?.id === kernelId);
  if (panel === undefined) {
    return;
  }
  const lost = panel.content.widgets.filter(
    cell => live.store.ofCell(kernelId, cell.model.id)?.ename === LOST
  );
  void NotebookActions.runCells(panel.content, lost, panel.sessionContext);
}

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  settings: ISettings,
  tracker: INotebookTracker | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const named = nameBySession(app.serviceManager);
  const name = (kernelId: string): string => named(kernelId) || trans.__('Kernel %1', kernelId.slice(0, 8));
  const news = new News(name, (message, ...values) => trans.__(message, ...values));
  const show = {
    label: trans.__('Show panel'),
    callback: () => {
      void app.commands.execute(SHOW_PANEL);
    }
  };
  const runAgain = (kernelId: string): Notification.IAction => ({
    label: trans.__('Run again'),
    displayType: 'accent',
    callback: () => {
      runLost(tracker, live, kernelId);
    }
  });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    clearTimeout(timer);
    if (!live.store.current) {
      return;
    }
    const now = Date.now() / 1000;
    for (const { kind, type, message, again } of news.look(live.store, now)) {
      if (settings.value.notify[kind]) {
        const actions = again === '' ? [show] : [runAgain(again), show];
        Notification.emit(message, type, { autoClose: SHOWN_MS, actions });
      }
    }
    const deadline = news.deadline();
    if (deadline !== null) {
      timer = setTimeout(look, Math.max(0, deadline - now) * 1000);
    }
  };
  live.changed.connect(look);
}

/** The notifications. */
export const notificationsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:notifications',
  description: 'Tells of processes that died, resumed kernels, quotas, and a scheduler that is out of reach.',
  autoStart: true,
  requires: [ILive, ISettings],
  optional: [INotebookTracker, ITranslator],
  activate
};
