// The panel's line about a notebook's replicas; opened, each of them, and the form that moves one.
import * as React from 'react';

import type { IKernel, IReplica } from '../generated/live';
import { formatBytes } from '../models/facts';
import type { ITranslate } from '../models/line';
import { isWell, replicasInWords } from '../models/replicasInWords';
import { Disclosure } from './disclosure';
import { type IMigrate, Migrate } from './migrate';

function Replica(props: { replica: IReplica; trans: ITranslate }): React.JSX.Element {
  const { replica, trans } = props;
  const roles: Record<string, string> = {
    executor: trans('runs cells'),
    standby: trans('stands by'),
    dormant: trans('no process until a cell runs')
  };
  const lag = replica.lag === 0 ? trans('in sync') : trans('%1 changes behind', replica.lag);
  const facts = isWell(replica) ? [lag, formatBytes(replica.state_bytes)] : [trans('not ready')];
  return (
    <li>
      <div className="jp-replkernel-replica">
        <strong>{replica.replica}</strong>
        <span className="jp-replkernel-part">{replica.host}</span>
        <span className="jp-replkernel-role">{roles[replica.role] ?? replica.role}</span>
      </div>
      <div>{facts.join(' · ')}</div>
      {replica.last_death !== '' && <div>{trans('last process: %1', replica.last_death)}</div>}
    </li>
  );
}

/** The words of Raft, for whoever looks for a fault. */
function Raft({ kernel, trans }: { kernel: IKernel; trans: ITranslate }): React.JSX.Element {
  return (
    <ul>
      {kernel.replicas.map(({ replica, role, raft_role, pid }) => (
        <li key={replica}>
          {[replica, role, raft_role, pid === 0 ? '' : trans('process %1', pid)]
            .filter(part => part !== '')
            .join(' · ')}
        </li>
      ))}
    </ul>
  );
}

/** The line, and what is behind it. */
export function Replicas(props: IMigrate): React.JSX.Element {
  const { kernel, trans } = props;
  const pins = kernel.replicas.flatMap(replica =>
    replica.pins.map(pin => ({ ...pin, replica: replica.replica }))
  );
  return (
    <>
      <Disclosure label={trans('Replicas: %1', replicasInWords(kernel, trans))} name="replicas">
        <ul className="jp-replkernel-replicas">
          {kernel.replicas.map(replica => (
            <Replica key={replica.replica} replica={replica} trans={trans} />
          ))}
        </ul>
        <Migrate {...props} />
        <Disclosure label={trans('Details')} name="raft">
          <Raft kernel={kernel} trans={trans} />
        </Disclosure>
      </Disclosure>
      {pins.map(pin => (
        <div key={`${pin.replica} ${pin.name}`} className="jp-replkernel-pin">
          {trans('pinned: %1', pin.name)} ({pin.reason})
        </div>
      ))}
    </>
  );
}
