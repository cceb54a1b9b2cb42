// What the panel shows: the notebook in front, the cluster, oneself. Law: what nobody has told yet is not said.
import * as React from 'react';

import type { LiveConnection } from '../models/connection';
import type { ITranslate } from '../models/line';
import type { NameKernel } from '../models/cluster';
import { AccountSection, ClusterSection } from './clusterSection';
import type { IHistoryPart } from './historySection';
import type { IActiveCell, INotebookActions } from './notebookSection';
import { JobsSection } from './jobsSection';
import { NotebookSection } from './notebookSection';

/** The notebook in front, if it runs on a replicated kernel. */
export interface INotebookInFront {
  name: string;
  kernelId: string;
  actions: INotebookActions;
  cell: IActiveCell | null;
  history?: IHistoryPart | null;
}

/** What the panel reads. */
export interface ISidebarSource {
  connection: LiveConnection;
  notebook(): INotebookInFront | null;
  /** Want to know the history of one kernel; empty: of none. */
  follow(kernelId: string): void;
  nameKernel: NameKernel;
  trans: ITranslate;
}

/** The panel's content. */
export function SidebarBody(props: { source: ISidebarSource }): React.JSX.Element {
  const { connection, trans, nameKernel } = props.source;
  const { store } = connection;
  const front = props.source.notebook();
  const kernel = front === null ? null : store.kernel(front.kernelId);
  const now = store.serverTime(Date.now() / 1000);
  if (!store.told) {
    return <p role="status">{trans('Connecting to the server …')}</p>;
  }
  return (
    <>
      {!store.current && <p role="status">{trans('Reconnecting… showing the last known state')}</p>}
      {front === null && (
        <p>{trans('Open a notebook with a Python 3 (replicated) kernel to see its GPUs here')}</p>
      )}
      {front !== null && kernel === null && (
        <>
          <h2>{front.name}</h2>
          <p>{trans('Its kernel is starting …')}</p>
        </>
      )}
      {front !== null && kernel !== null && (
        <NotebookSection
          key={front.kernelId}
          name={front.name}
          kernel={kernel}
          store={store}
          actions={front.actions}
          cell={front.cell}
          history={front.history ?? null}
          nameKernel={nameKernel}
          now={now}
          trans={trans}
        />
      )}
      <ClusterSection
        store={store}
        inFront={kernel?.kernel_id ?? ''}
        now={now}
        name={nameKernel}
        trans={trans}
      />
      <JobsSection jobs={store.jobs} now={now} trans={trans} />
      {store.account !== null && (
        <AccountSection account={store.account} leases={store.leases} now={now} trans={trans} />
      )}
    </>
  );
}
