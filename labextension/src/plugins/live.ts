// The one connection to what the server tells live; it is made when the first part wants to know.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { LiveConnection } from '../models/connection';
import { ILive } from '../tokens';

/** Provides the connection. */
export const livePlugin: JupyterFrontEndPlugin<ILive> = {
  id: '@replkernel/labextension:live',
  description: 'Listens to what the server tells live of replicated kernels and their cluster.',
  autoStart: true,
  provides: ILive,
  activate: (app: JupyterFrontEnd) => new LiveConnection(app.serviceManager.serverSettings)
};
