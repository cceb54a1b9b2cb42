// The dashboard's tab: a command, an entry in the palette, and the launcher's cards about GPUs.
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ILayoutRestorer } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { Dashboard } from '../components/dashboard';
import { gpuCardIcon, gpuIcon } from '../components/panelIcon';
import { nameBySession } from '../models/replicated';
import { KERNEL_NAME } from '../models/watcher';
import { ILive } from '../tokens';

/** The command that shows the dashboard. */
export const SHOW_DASHBOARD = 'replkernel:show-dashboard';
/** The command that opens a new notebook on a replicated kernel, for who looks for GPUs. */
const NEW_NOTEBOOK = 'replkernel:new-notebook';
/** Among the notebooks the launcher shows pictures instead of icons. */
const ICON_URL = `data:image/svg+xml,${encodeURIComponent(gpuCardIcon.svgstr)}`;
const NAMESPACE = 'replkernel-dashboard';
const ID = 'jp-replkernel-dashboard';

function activate(
  app: JupyterFrontEnd,
  live: ILive,
  rendermime: IRenderMimeRegistry,
  launcher: ILauncher | null,
  palette: ICommandPalette | null,
  themes: IThemeManager | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void {
  const trans = (translator ?? nullTranslator).load('replkernel');
  const tracker = new WidgetTracker<MainAreaWidget<Dashboard>>({ namespace: NAMESPACE });

  const make = (): MainAreaWidget<Dashboard> => {
    const content = new Dashboard(
      app.serviceManager.serverSettings,
      rendermime,
      live,
      nameBySession(app.serviceManager),
      (message, ...values) => trans.__(message, ...values)
    );
    const widget = new MainAreaWidget({ content });
    content.node.tabIndex = 0; // It scrolls: by keys, too.
    widget.id = ID;
    widget.toolbar.hide();
    widget.title.label = trans.__('GPU cluster');
    widget.title.icon = gpuIcon;
    widget.title.closable = true;
    content.node.setAttribute('aria-label', trans.__('GPU cluster'));
    return widget;
  };

  app.commands.addCommand(SHOW_DASHBOARD, {
    label: trans.__('GPU cluster'),
    caption: trans.__('See who holds GPUs now, who waits, and how all were used in the last day'),
    icon: gpuIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: async () => {
      const widget = tracker.find(one => !one.isDisposed) ?? make();
      if (!tracker.has(widget)) {
        await tracker.add(widget);
      }
      if (!widget.isAttached) {
        app.shell.add(widget, 'main', { type: 'GPU cluster' });
      }
      app.shell.activateById(widget.id);
    }
  });
  app.commands.addCommand(NEW_NOTEBOOK, {
    label: trans.__('Notebook with GPUs'),
    caption: trans.__('Open a notebook on a replicated kernel; its toolbar has the GPUs to choose from'),
    icon: gpuCardIcon,
    describedBy: { args: { type: 'object', properties: { cwd: { type: 'string' } } } },
    execute: args =>
      app.commands.execute('notebook:create-new', {
        cwd: typeof args['cwd'] === 'string' ? args['cwd'] : '',
        kernelName: KERNEL_NAME
      })
  });
  palette?.addItem({ command: SHOW_DASHBOARD, category: trans.__('Kernel Operations') });
  // Among the notebooks too: JupyterLab's own sections stand first, and fill a small window.
  const notebooks = (translator ?? nullTranslator).load('jupyterlab').__('Notebook');
  launcher?.add({ command: NEW_NOTEBOOK, category: notebooks, rank: 1, kernelIconUrl: ICON_URL });
  launcher?.add({ command: NEW_NOTEBOOK, category: trans.__('GPUs'), rank: 0 });
  launcher?.add({ command: SHOW_DASHBOARD, category: trans.__('GPUs'), rank: 1 });
  themes?.themeChanged.connect(() => {
    tracker.forEach(widget => {
      void widget.content.refresh();
    });
  });
  if (restorer !== null) {
    void restorer.restore(tracker, { command: SHOW_DASHBOARD, name: () => NAMESPACE });
  }
}

/** The tab. */
export const dashboardPlugin: JupyterFrontEndPlugin<void> = {
  id: '@replkernel/labextension:dashboard',
  description: 'A tab that tells who holds the cluster’s GPUs, and how they were used.',
  autoStart: true,
  requires: [ILive, IRenderMimeRegistry],
  optional: [ILauncher, ICommandPalette, IThemeManager, ILayoutRestorer, ITranslator],
  activate
};
