// Tells in JupyterLab's notifications what is worth it. It listens to what the page hears anyway, and asks nothing.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { News } from '../models/news';
import { ILive, ISettings } from '../tokens';
import { SHOW_PANEL } from './sidebar';

const SHOWN_MS = 8_000;

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  settings: ISettings,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const { sessions } = app.serviceManager;
  const name = (kernelId: string): string => {
    for (const session of sessions.running()) {
      if (session.kernel?.id === kernelId) {
        return session.name || session.path;
      }
    }
    return trans.__('Kernel %1', kernelId.slice(0, 8));
  };
  const news = new News(name, (message, ...values) => trans.__(message, ...values));
  const action = {
    label: trans.__('Show replicas'),
    callback: () => {
      void app.commands.execute(SHOW_PANEL);
    }
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    clearTimeout(timer);
    if (!live.store.current) {
      return;
    }
    const now = Date.now() / 1000;
    for (const { kind, type, message } of news.look(live.store, now)) {
      if (settings.value.notify[kind]) {
        Notification.emit(message, type, { autoClose: SHOWN_MS, actions: [action] });
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
  description: 'Tells of lost executors, restored state, quotas, and a scheduler that is out of reach.',
  autoStart: true,
  requires: [ILive, ISettings],
  optional: [ITranslator],
  activate
};
