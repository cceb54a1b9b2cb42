// The lab extension of replkernel: the list of its plugins and nothing else.
import { cellsPlugin } from './plugins/cells';
import { livePlugin } from './plugins/live';
import { outputsPlugin } from './plugins/outputs';
import { runningPlugin } from './plugins/running';
import { sidebarPlugin } from './plugins/sidebar';
import { statusPlugin } from './plugins/status';

export default [livePlugin, statusPlugin, outputsPlugin, cellsPlugin, sidebarPlugin, runningPlugin];
