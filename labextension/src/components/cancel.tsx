// The button that has a cell wait no more: in its line, and in the panel.
import * as React from 'react';

import type { ITranslate } from '../models/line';

/** The button. */
export function Cancel(props: { press: () => void; trans: ITranslate }): React.JSX.Element {
  const { press, trans } = props;
  return (
    <button
      type="button"
      className="jp-Button jp-mod-styled jp-mod-minimal jp-replkernel-cancel"
      title={trans('Stop waiting: this cell and those behind it do not run')}
      onClick={press}
    >
      {trans('Cancel')}
    </button>
  );
}
