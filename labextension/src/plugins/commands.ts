// What the panel's buttons do, as commands in the palette, for the notebook in front.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog, Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { hibernate, migrate, release, request, resume } from '../models/actions';
import { readCellRequest, writeCellRequest } from '../models/cellRequest';
import { choicesInWords, mostGpus } from '../models/cluster';
import type { ITranslate } from '../models/line';
import { targets } from '../models/moves';
import { possible } from '../models/notebookState';
import type { Possible } from '../models/notebookState';
import { isReplicated } from '../models/replicated';
import { ILive } from '../tokens';

const SHOWN_MS = 6_000;

type Act = (kernel: Kernel.IKernelConnection) => Promise<string>;

/** The kernel of the notebook in front, if it is a replicated one. */
function kernelInFront(app: JupyterFrontEnd, tracker: INotebookTracker): Kernel.IKernelConnection | null {
  const kernel = tracker.currentWidget?.sessionContext.session?.kernel;
  return kernel && isReplicated(kernel, app.serviceManager.kernelspecs) ? kernel : null;
}

async function askForHost(
  kernel: Kernel.IKernelConnection,
  live: ILive,
  trans: TranslationBundle
): Promise<string> {
  const unlisten = live.want();
  try {
    const known = live.store.kernel(kernel.id);
    const hosts =
      known === null
        ? []
        : targets(known, live.store.hosts, (message, ...values) => trans.__(message, ...values));
    if (hosts.length === 0) {
      throw new Error(
        trans.__('Each host that is up has a replica already: start an agent on another host first.')
      );
    }
    const { value } = await InputDialog.getItem({
      title: trans.__('Move a replica of this notebook to'),
      items: hosts.map(one => one.label)
    });
    const chosen = hosts.find(one => one.label === value);
    return chosen === undefined ? '' : await migrate(kernel, chosen.host);
  } finally {
    unlisten();
  }
}

/** Ask for one of the numbers of GPUs that a host has; null: nothing was chosen. */
async function askForNumber(
  title: string,
  now: number | null,
  live: ILive,
  trans: TranslationBundle
): Promise<number | null> {
  const words: ITranslate = (message, ...values) => trans.__(message, ...values);
  const offered = choicesInWords(now, mostGpus(live.store.hosts), words);
  const current = [...offered.values()].indexOf(now ?? 1);
  const { value } = await InputDialog.getItem({ title, items: [...offered.keys()], current });
  return value === null ? null : (offered.get(value) ?? null);
}

async function askForGpus(
  kernel: Kernel.IKernelConnection,
  live: ILive,
  trans: TranslationBundle
): Promise<string> {
  const holds = live.store.kernel(kernel.id);
  const title = trans.__('GPUs for every cell of this notebook');
  const gpus = await askForNumber(title, holds?.default_gpus ?? null, live, trans);
  return gpus === null ? '' : request(kernel, gpus, gpus === 0 ? 0 : (holds?.default_vram_gb ?? 0));
}

async function askForCell(tracker: INotebookTracker, live: ILive, trans: TranslationBundle): Promise<string> {
  const model = tracker.activeCell?.model;
  if (model?.type !== 'code') {
    throw new Error(trans.__('Select a code cell first: other cells use no GPUs.'));
  }
  const known = readCellRequest(model);
  const now = Number.isNaN(known.gpus) ? null : known.gpus;
  const gpus = await askForNumber(trans.__('GPUs for this cell'), now, live, trans);
  if (gpus !== null) {
    writeCellRequest(model, { gpus, vramGb: known.vramGb });
  }
  return '';
}

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  tracker: INotebookTracker,
  palette: ICommandPalette | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  /** What the kernel in front cannot do now is not offered, as in the panel. */
  const can = (does: Possible): boolean => {
    const kernel = kernelInFront(app, tracker);
    const known = kernel === null || !live.store.current ? null : live.store.kernel(kernel.id);
    return kernel !== null && (known === null || possible(known, does));
  };
  const add = (id: string, label: string, act: Act, does: Possible = 'ask'): void => {
    app.commands.addCommand(id, {
      label: args => (args['isPalette'] ? trans.__('Replicated kernel: %1', label) : label),
      isEnabled: () => can(does),
      // A cell's toolbar has a place for what can be done here only; a menu says what could be.
      isVisible: args => args['toolbar'] !== true || kernelInFront(app, tracker) !== null,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        const kernel = kernelInFront(app, tracker);
        if (kernel === null) {
          return;
        }
        try {
          const said = await act(kernel);
          if (said !== '') {
            Notification.info(said, { autoClose: SHOWN_MS });
          }
        } catch (error) {
          Notification.error(error instanceof Error ? error.message : String(error), { autoClose: SHOWN_MS });
        }
      }
    });
    palette?.addItem({ command: id, args: { isPalette: true }, category: trans.__('Kernel Operations') });
  };
  add('replkernel:request-gpus', trans.__('GPUs for Every Cell…'), kernel => askForGpus(kernel, live, trans));
  add('replkernel:set-cell-gpus', trans.__('GPUs for This Cell…'), () => askForCell(tracker, live, trans));
  add('replkernel:release-gpus', trans.__('Release GPUs'), release, 'release');
  add('replkernel:hibernate', trans.__('Hibernate'), hibernate, 'hibernate');
  add('replkernel:resume', trans.__('Resume'), resume, 'resume');
  add('replkernel:migrate', trans.__('Move a Replica…'), kernel => askForHost(kernel, live, trans));
}

/** The commands. */
export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:commands',
  description: 'Commands for the replicated kernel of the notebook in front.',
  autoStart: true,
  requires: [ILive, INotebookTracker],
  optional: [ICommandPalette, ITranslator],
  activate
};
