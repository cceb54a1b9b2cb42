// Icons, drawn in the colour of their text; each always stands beside words, so screen readers skip them.
import * as React from 'react';

import type { Icon } from '../models/line';

const PATHS: Record<Icon, string> = {
  waiting: 'M4 2h8v2.5L9.2 8 12 11.5V14H4v-2.5L6.8 8 4 4.5z',
  moving: 'M2 7h8L7.2 4.2l1.1-1.1L13 8l-4.7 4.9-1.1-1.1L10 9H2z',
  running: 'M4 2.5v11l9-5.5z',
  done: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 1.5a4.5 4.5 0 1 1 0 9 4.5 4.5 0 0 1 0-9z',
  skipped: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM4.5 7.2h7v1.6h-7z',
  failed: 'M7.1 2h1.8v7.5H7.1zM7.1 11.5h1.8V14H7.1z',
  pending: 'M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9z',
  durable: 'M6.3 12.6 1.9 8.2l1.3-1.3 3.1 3.1 6.5-6.5 1.3 1.3z',
  lost: 'm4 2.7 4 4 4-4L13.3 4l-4 4 4 4-1.3 1.3-4-4-4 4L2.7 12l4-4-4-4z'
};

/** One icon of the line under a cell. */
export function StateIcon({ icon }: { icon: Icon }): React.JSX.Element {
  return (
    <svg className="jp-replkernel-icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[icon]} fill="currentColor" />
    </svg>
  );
}

/** A chip: what a GPU is named by. */
export const GPU_PATH =
  'M7 1h2v2h2V1h2v2h1v1h1v2h-1v1h1v2h-1v1h1v2h-1v1h-1v2h-2v-2H9v2H7v-2H5v2H3v-2H2v-1H1v-2h1V9H1V7h1V6H1V4h1V3h1V1h2v2h2zM4 5v6h8V5zm2 2h4v2H6z';

/** The same beside words. */
export function GpuIcon(): React.JSX.Element {
  return (
    <svg className="jp-replkernel-icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={GPU_PATH} fill="currentColor" fillRule="evenodd" />
    </svg>
  );
}
