// The lab extension of replkernel: the list of its plugins and nothing else.
import { outputsPlugin } from './plugins/outputs';
import { statusPlugin } from './plugins/status';

export default [statusPlugin, outputsPlugin];
