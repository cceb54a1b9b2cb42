// The panel's part about the notebook in front: its replicas, its GPUs, and what can be done about them.
import * as React from 'react';

import type { IKernel, IReplica } from '../generated/live';
import type { ICellRequest } from '../models/cellRequest';
import { formatBytes, formatSeconds } from '../models/facts';
import type { ITranslate } from '../models/line';
import { gpusInWords } from '../models/line';
import type { LiveStore } from '../models/live';
import { GpuRequest } from './gpuRequest';
import { Migrate } from './migrate';

/** The active cell, and what it asks for itself. */
export interface IActiveCell extends ICellRequest {
  id: string;
}

/** What the section may have done; each resolves with a sentence, or rejects with one. */
export interface INotebookActions {
  hibernate(): Promise<string>;
  resume(): Promise<string>;
  release(): Promise<string>;
  /** Have one of the replicas moved to a host. */
  migrate(host: string): Promise<string>;
  request(gpus: number, vramGb: number): Promise<string>;
  /** Write what the active cell asks for into its metadata. */
  setCell(request: ICellRequest): void;
}

function stateInWords(kernel: IKernel, trans: ITranslate): string {
  if (!kernel.answers) {
    return trans('Its router does not answer');
  }
  switch (kernel.rest) {
    case 'asleep':
      return trans('At rest: no process runs, the next cell brings all back');
    case 'wanted':
    case 'saving':
    case 'stopping':
      return trans('Going to rest');
    default:
      return kernel.state === '' ? trans('Starting') : kernel.state;
  }
}

function Replica(props: { replica: IReplica; trans: ITranslate }): React.JSX.Element {
  const { replica, trans } = props;
  const well = replica.role === 'executor' || replica.role === 'standby';
  const lag = replica.lag === 0 ? trans('up to date') : trans('%1 behind', replica.lag);
  const facts = well ? [trans('well'), lag, formatBytes(replica.state_bytes)] : [trans('not ready')];
  const role = replica.raft_role === '' ? replica.role : `${replica.role}, ${replica.raft_role}`;
  return (
    <li>
      <div className="jp-replkernel-replica">
        <strong>{replica.replica}</strong>
        <span className="jp-replkernel-part">{replica.host}</span>
        <span className="jp-replkernel-role">{role}</span>
      </div>
      <div>{facts.join(' · ')}</div>
      {replica.pins.map(pin => (
        <div key={pin.name} className="jp-replkernel-pin">
          {trans('pinned: %1', pin.name)} ({pin.reason})
        </div>
      ))}
      {replica.last_death !== '' && <div>{trans('last process: %1', replica.last_death)}</div>}
    </li>
  );
}

function Holdings(props: {
  store: LiveStore;
  kernel: IKernel;
  now: number;
  trans: ITranslate;
}): React.JSX.Element {
  const { store, kernel, now, trans } = props;
  if (kernel.holdings.length === 0) {
    return <p>{trans('No GPUs are held.')}</p>;
  }
  return (
    <ul className="jp-replkernel-holdings">
      {kernel.holdings.map(held => (
        <li key={held.lease} title={held.gpus.join('\n')}>
          {gpusInWords(held.gpus, store.models, trans)} · {held.host} ·{' '}
          {held.cell === '' ? trans('kept between cells') : trans('in use')} ·{' '}
          {formatSeconds(Math.max(0, now - held.since))}
        </li>
      ))}
    </ul>
  );
}

/** The section. */
export function NotebookSection(props: {
  name: string;
  kernel: IKernel;
  store: LiveStore;
  actions: INotebookActions;
  cell: IActiveCell | null;
  now: number;
  trans: ITranslate;
}): React.JSX.Element {
  const { kernel, store, actions, trans } = props;
  const [said, setSaid] = React.useState('');
  const [busy, setBusy] = React.useState(false);
  const act = (action: () => Promise<string>): void => {
    setBusy(true);
    setSaid('');
    action()
      .then(setSaid, (error: unknown) => {
        setSaid(error instanceof Error ? error.message : String(error));
      })
      .finally(() => {
        setBusy(false);
      });
  };
  const asleep = kernel.rest === 'asleep';
  const kept = kernel.holdings.some(held => held.cell === '');
  return (
    <section aria-labelledby="jp-replkernel-notebook">
      <h2 id="jp-replkernel-notebook">{props.name}</h2>
      <p>{stateInWords(kernel, trans)}</p>
      <div className="jp-replkernel-buttons">
        <button
          type="button"
          className="jp-Button jp-mod-styled jp-mod-minimal"
          disabled={busy || asleep}
          onClick={() => {
            act(() => actions.hibernate());
          }}
        >
          {trans('Hibernate')}
        </button>
        <button
          type="button"
          className="jp-Button jp-mod-styled jp-mod-minimal"
          disabled={busy || !asleep}
          onClick={() => {
            act(() => actions.resume());
          }}
        >
          {trans('Resume')}
        </button>
        <button
          type="button"
          className="jp-Button jp-mod-styled jp-mod-minimal"
          disabled={busy || !kept}
          onClick={() => {
            act(() => actions.release());
          }}
        >
          {trans('Release GPUs')}
        </button>
      </div>
      <p className="jp-replkernel-said" role="status" aria-live="polite">
        {said}
      </p>
      {!asleep && (
        <>
          <h3>{trans('Replicas')}</h3>
          <ul className="jp-replkernel-replicas">
            {kernel.replicas.map(replica => (
              <Replica key={replica.replica} replica={replica} trans={trans} />
            ))}
          </ul>
          <Migrate
            kernel={kernel}
            hosts={store.hosts}
            disabled={busy}
            migrate={host => {
              act(() => actions.migrate(host));
            }}
            trans={trans}
          />
        </>
      )}
      {kernel.checkpoint_trouble !== '' && (
        <p className="jp-replkernel-trouble">{kernel.checkpoint_trouble}</p>
      )}
      <h3>{trans('GPUs')}</h3>
      {kernel.scheduler_trouble !== '' && <p className="jp-replkernel-trouble">{kernel.scheduler_trouble}</p>}
      <Holdings store={store} kernel={kernel} now={props.now} trans={trans} />
      <GpuRequest
        key={`${kernel.kernel_id} ${kernel.default_gpus}`}
        label={trans('GPUs for each cell')}
        action={trans('Request')}
        gpus={kernel.default_gpus}
        vramGb={0}
        disabled={busy}
        trans={trans}
        request={(gpus, vramGb) => {
          act(() => actions.request(gpus ?? 0, vramGb));
        }}
      />
      {props.cell !== null && (
        <GpuRequest
          key={`${props.cell.id} ${props.cell.gpus ?? ''} ${props.cell.vramGb}`}
          label={trans('GPUs for this cell')}
          action={trans('Set')}
          inherit={trans('as above')}
          gpus={props.cell.gpus}
          vramGb={props.cell.vramGb}
          disabled={false}
          trans={trans}
          request={(gpus, vramGb) => {
            actions.setCell({ gpus, vramGb });
          }}
        />
      )}
    </section>
  );
}
