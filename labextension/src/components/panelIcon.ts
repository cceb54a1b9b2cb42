// Icons of JupyterLab's kind: a GPU's chip; what hibernates a kernel.
import { LabIcon } from '@jupyterlab/ui-components';

import { GPU_PATH } from './icons';

/** A chip. */
export const gpuIcon = new LabIcon({
  name: 'replkernel:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd" d="${GPU_PATH}"/>
</svg>`
});

/** The same in a colour that is seen in each theme, as cards of the launcher have it. */
export const gpuCardIcon = new LabIcon({
  name: 'replkernel:gpu-card',
  svgstr: gpuIcon.svgstr.replaceAll('#616161', '#1976d2').replace('jp-icon3 jp-icon-selectable', '')
});

/** A moon. */
export const hibernateIcon = new LabIcon({
  name: 'replkernel:hibernate',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M14 3a9 9 0 1 0 7 12A8 8 0 0 1 14 3z"/>
</svg>`
});
