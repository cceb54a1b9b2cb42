// The histories of notebooks, for all that show something of them; and the ways through them as commands.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import type { TranslationBundle } from '@jupyterlab/translation';

import { Histories } from '../models/histories';
import { rowsOf } from '../models/history';
import { isReplicated } from '../models/replicated';
import { IHistories, ILive } from '../tokens';

const SHOWN_MS = 6_000;
const NAMED_MAX = 20;

async function confirmed(
  lost: readonly { name: string; type: string }[],
  trans: TranslationBundle
): Promise<boolean> {
  const names = lost.slice(0, NAMED_MAX).map(one => `${one.name} (${one.type})`);
  const more = lost.length > NAMED_MAX ? [trans.__('and %1 more', lost.length - NAMED_MAX)] : [];
  const { button } = await showDialog({
    title: trans.__('Not everything can come back'),
    body: trans.__(
      'These cannot be copied, so they are lost on the way or do not come back: %1. ' +
        'Files, sockets and other processes stay as they are.',
      [...names, ...more].join(', ')
    ),
    buttons: [
      Dialog.cancelButton({ label: trans.__('Stay here') }),
      Dialog.warnButton({ label: trans.__('Go without them') })
    ],
    defaultButton: 0
  });
  return button.accept;
}

type Act = (histories: Histories, kernelId: string) => Promise<unknown>;

async function ask(title: string, then: (text: string) => Promise<unknown>): Promise<void> {
  const { value } = await InputDialog.getText({ title });
  if (value !== null && value.trim() !== '') {
    await then(value.trim());
  }
}

/** Have a person choose a point, and go there. */
async function goBack(histories: Histories, kernelId: string, trans: TranslationBundle): Promise<void> {
  const document = histories.of(kernelId) ?? (await histories.look(kernelId));
  const rows = rowsOf(document, (message, ...values) => trans.__(message, ...values));
  const items = rows.filter(row => !row.here).map(row => ({ row, label: `${row.cell} ${row.source}` }));
  if (items.length === 0) {
    throw new Error(trans.__('There is no other point in the history yet.'));
  }
  const { value } = await InputDialog.getItem({
    title: trans.__('Go back to the state after cell'),
    items: items.map(item => item.label)
  });
  const chosen = items.find(item => item.label === value);
  if (chosen !== undefined) {
    await histories.travel(kernelId, 'goto', chosen.row.point);
  }
}

function addCommands(
  app: JupyterFrontEnd,
  histories: Histories,
  tracker: INotebookTracker,
  palette: ICommandPalette | null,
  trans: TranslationBundle
): void {
  const inFront = (): string => {
    const kernel = tracker.currentWidget?.sessionContext.session?.kernel;
    return kernel && isReplicated(kernel, app.serviceManager.kernelspecs) ? kernel.id : '';
  };
  const add = (id: string, label: string, act: Act, way?: 'undo' | 'redo'): void => {
    app.commands.addCommand(id, {
      label: args => (args['isPalette'] ? trans.__('Replicated kernel: %1', label) : label),
      isEnabled: () => inFront() !== '' && (way === undefined || histories.of(inFront())?.[way] !== false),
      describedBy: { args: { type: 'object', properties: {} } },
      execute: async () => {
        const kernelId = inFront();
        try {
          await act(histories, kernelId);
        } catch (error) {
          Notification.error(error instanceof Error ? error.message : String(error), { autoClose: SHOWN_MS });
        }
      }
    });
    palette?.addItem({ command: id, args: { isPalette: true }, category: trans.__('Kernel Operations') });
  };
  add('replkernel:undo', trans.__('Undo Last Cell’s Changes'), (all, id) => all.travel(id, 'undo'), 'undo');
  add('replkernel:redo', trans.__('Redo Cell’s Changes'), (all, id) => all.travel(id, 'redo'), 'redo');
  add('replkernel:go-back', trans.__('Go Back to a Cell…'), (all, id) => goBack(all, id, trans));
  add('replkernel:mark', trans.__('Mark This State…'), (all, id) =>
    ask(trans.__('Name of the mark'), name => all.mark(id, name, ''))
  );
  add('replkernel:branch', trans.__('Start a Branch…'), (all, id) =>
    ask(trans.__('Name of the branch'), name => all.branch(id, name))
  );
}

/** Provides the histories. */
export const historyPlugin: JupyterFrontEndPlugin<IHistories> = {
  id: '@replkernel/labextension:history',
  description: 'Knows the points that notebooks can go back to, and takes them there.',
  autoStart: true,
  provides: IHistories,
  requires: [ILive],
  optional: [INotebookTracker, ICommandPalette, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    live: ILive,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    translator: ITranslator | null
  ) => {
    const trans = (translator ?? nullTranslator).load('replkernel');
    const histories = new Histories(app.serviceManager.serverSettings, live, lost => confirmed(lost, trans));
    if (tracker !== null) {
      addCommands(app, histories, tracker, palette, trans);
    }
    return histories;
  }
};
