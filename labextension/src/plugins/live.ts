// The one connection to what the server tells live; it is made when the first part wants to know.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { LiveConnection } from '../models/connection';
import { ILive, ISettings } from '../tokens';

/** Provides the connection. */
export const livePlugin: JupyterFrontEndPlugin<ILive> = {
  id: '@replkernel/labextension:live',
  description: 'Listens to what the server tells live of replicated kernels and their cluster.',
  autoStart: true,
  provides: ILive,
  requires: [ISettings],
  activate: (app: JupyterFrontEnd, settings: ISettings) => {
    const live = new LiveConnection(app.serviceManager.serverSettings);
    const follow = (): void => {
      live.pollEach(settings.value.pollSeconds);
    };
    settings.changed.connect(follow);
    follow();
    return live;
  }
};
