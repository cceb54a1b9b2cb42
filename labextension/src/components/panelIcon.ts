// Icons of JupyterLab's kind: three replicas, one in front; what puts a kernel to rest.
import { LabIcon } from '@jupyterlab/ui-components';

/** Three squares behind each other. */
export const replicasIcon = new LabIcon({
  name: 'replkernel:replicas',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M9 3h12v12h-2V5H9z"/><path d="M6 6h12v12h-2V8H6z"/><path d="M3 9h12v12H3z"/>
  </g>
</svg>`
});

/** A moon. */
export const restIcon = new LabIcon({
  name: 'replkernel:rest',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M14 3a9 9 0 1 0 7 12A8 8 0 0 1 14 3z"/>
</svg>`
});
