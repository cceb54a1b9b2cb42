// A small form: the host that one of the notebook's replicas is wanted on, and how the last wish stands.
import * as React from 'react';

import type { IHost, IKernel } from '../generated/live';
import type { ITranslate } from '../models/line';
import { moveInWords, moves, targets } from '../models/moves';

/** What the form shows, and what it does. */
export interface IMigrate {
  kernel: IKernel;
  hosts: readonly IHost[];
  disabled: boolean;
  migrate: (host: string) => void;
  trans: ITranslate;
}

/** The form; where there is nowhere to go it says so. */
export function Migrate(props: IMigrate): React.JSX.Element {
  const { kernel, trans } = props;
  const [chosen, setChosen] = React.useState('');
  const offered = targets(kernel, props.hosts, trans);
  const host = offered.some(one => one.host === chosen) ? chosen : (offered[0]?.host ?? '');
  const stands = moveInWords(kernel.move, trans);
  return (
    <>
      <form
        className="jp-replkernel-request jp-mod-migrate"
        onSubmit={event => {
          event.preventDefault();
          props.migrate(host);
        }}
      >
        <label>
          {trans('Move to')}
          <select
            className="jp-mod-styled"
            value={host}
            disabled={offered.length === 0}
            onChange={event => {
              setChosen(event.target.value);
            }}
          >
            {offered.length === 0 && <option value="">{trans('no other host is up')}</option>}
            {offered.map(one => (
              <option key={one.host} value={one.host}>
                {one.label}
              </option>
            ))}
          </select>
        </label>
        <button
          type="submit"
          className="jp-Button jp-mod-styled jp-mod-minimal"
          disabled={props.disabled || host === '' || moves(kernel.move)}
          title={host === '' ? trans('Each host that is up has a replica already') : ''}
        >
          {trans('Move')}
        </button>
      </form>
      <p role="status" className="jp-replkernel-said">
        {stands}
      </p>
    </>
  );
}
