// Two sections of the Running panel: replicated kernels, and hibernated ones. They listen only while they are seen.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRunningSessionManagers, IRunningSessionSidebar } from '@jupyterlab/running';
import type { IRunningSessions } from '@jupyterlab/running';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { deleteIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import * as React from 'react';

import { gpuIcon, hibernateIcon } from '../components/panelIcon';
import { ActionLabel } from '../components/actionLabel';
import { KernelList } from '../models/kernelList';
import type { IListed } from '../models/running';
import type { IsOurs } from '../models/runningItems';
import { flat, isOne, without } from '../models/runningItems';
import { ILive } from '../tokens';

/** What a row of both sections shows: a name, one action, and where and how large the kernel is. */
function row(
  one: IListed,
  action: string,
  title: string,
  act: () => void
): Pick<IRunningSessions.IRunningItem, 'icon' | 'label' | 'labelTitle' | 'detail'> {
  return {
    icon: () => gpuIcon,
    label: () => (
      <ActionLabel
        name={one.name}
        whole={`${one.path || one.name}\n${one.title}`}
        action={action}
        title={title}
        act={act}
      />
    ),
    labelTitle: () => `${one.path || one.name}\n${one.title}`,
    detail: () => one.detail
  };
}

function runningSection(kernels: KernelList): IRunningSessions.IManager {
  const { trans } = kernels;
  return {
    name: trans('Replicated Kernels'),
    running: () =>
      kernels.lists.running.map(one => ({
        ...row(one, trans('Shut Down'), trans('Shut down %1 and discard its variables', one.name), () => {
          void kernels.askToShutDown(one);
        }),
        shutdown: () => {
          kernels.rest(one.kernelId);
        },
        ...(one.path === ''
          ? {}
          : {
              open: () => {
                kernels.open(one.path);
              }
            })
      })),
    refreshRunning: () => {
      kernels.refresh();
    },
    runningChanged: kernels.changed,
    shutdownAll: () => {
      kernels.lists.running.forEach(one => {
        kernels.rest(one.kernelId);
      });
    },
    shutdownLabel: trans('Hibernate'),
    shutdownAllLabel: trans('Hibernate All'),
    shutdownAllConfirmationText: trans(
      'All replicated kernels of this server hibernate: their processes end, their variables stay. The next cell resumes each.'
    ),
    shutdownItemIcon: hibernateIcon
  };
}

function restingSection(kernels: KernelList): IRunningSessions.IManager {
  const { trans } = kernels;
  return {
    name: trans('Hibernated Kernels'),
    running: () =>
      kernels.lists.resting.map(one => ({
        ...row(one, trans('Resume'), trans('Resume %1 with all its variables', one.name), () => {
          kernels.resume(one);
        }),
        shutdown: () => {
          void kernels.askToDelete(one);
        }
      })),
    refreshRunning: () => {
      kernels.refresh();
    },
    runningChanged: kernels.changed,
    shutdownAll: () => {
      kernels.delete(kernels.lists.resting);
    },
    shutdownLabel: trans('Delete'),
    shutdownAllLabel: trans('Delete All'),
    shutdownAllConfirmationText: trans(
      'All variables of the hibernated kernels are deleted for good. The notebooks themselves stay.'
    ),
    shutdownItemIcon: deleteIcon
  };
}

/** Have JupyterLab's own sections leave out the kernels that ours list, and leave these alone. */
function listOnce(manager: IRunningSessions.IManager, kernels: KernelList): void {
  const { trans } = kernels;
  const all = manager.running.bind(manager);
  const endAll = manager.shutdownAll.bind(manager);
  const said = manager.shutdownAllConfirmationText;
  const ours: IsOurs = kernelId => kernels.isReplicated(kernelId);
  const hides = (): boolean => flat(all({ mode: 'tree' })).some(item => isOne(item, ours));
  manager.running = options => without(all(options), ours);
  manager.shutdownAll = () => {
    if (hides()) {
      flat(manager.running({ mode: 'tree' })).forEach(item => item.shutdown?.());
    } else {
      endAll();
    }
  };
  manager.shutdownAllConfirmationText = () =>
    hides()
      ? trans('Shut down all kernels in this section? Replicated kernels keep running.')
      : ((typeof said === 'function' ? said() : said) ?? '');
}

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  managers: IRunningSessionManagers,
  sidebar: IRunningSessionSidebar | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const kernels = new KernelList(app, live, (message, ...values) => trans.__(message, ...values));
  managers.items().forEach(manager => {
    listOnce(manager, kernels);
  });
  managers.added.connect((_, manager) => {
    listOnce(manager, kernels);
  });
  managers.add(runningSection(kernels));
  managers.add(restingSection(kernels));
  if (sidebar instanceof Widget) {
    MessageLoop.installMessageHook(sidebar, (_, message: Message) => {
      if (message.type === 'after-show' || message.type === 'after-hide') {
        kernels.seen(message.type === 'after-show');
      }
      return true;
    });
  }
}

/** The sections. */
export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:running',
  description: 'Lists replicated kernels, and hibernated ones, in the Running panel.',
  autoStart: true,
  requires: [ILive, IRunningSessionManagers],
  optional: [IRunningSessionSidebar, ITranslator],
  activate
};
