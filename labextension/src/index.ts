// The lab extension of replkernel: the list of its plugins and nothing else.
import { cellsPlugin } from './plugins/cells';
import { commandsPlugin } from './plugins/commands';
import { dashboardPlugin } from './plugins/dashboard';
import { debuggingPlugin } from './plugins/debugging';
import { historyPlugin } from './plugins/history';
import { livePlugin } from './plugins/live';
import { notificationsPlugin } from './plugins/notifications';
import { outputsPlugin } from './plugins/outputs';
import { runningPlugin } from './plugins/running';
import { settingsPlugin } from './plugins/settings';
import { sidebarPlugin } from './plugins/sidebar';
import { statusPlugin } from './plugins/status';
import { toolbarPlugin } from './plugins/toolbar';

export default [
  settingsPlugin,
  livePlugin,
  historyPlugin,
  statusPlugin,
  outputsPlugin,
  cellsPlugin,
  toolbarPlugin,
  sidebarPlugin,
  runningPlugin,
  notificationsPlugin,
  debuggingPlugin,
  commandsPlugin,
  dashboardPlugin
];
