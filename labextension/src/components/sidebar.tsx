// The panel at the side: the notebook in front, the cluster, oneself. It listens only while it is seen.
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import type { LiveConnection } from '../models/connection';
import type { ITranslate } from '../models/line';
import { AccountSection, ClusterSection } from './clusterSection';
import type { NameKernel } from './clusterSection';
import type { IActiveCell, INotebookActions } from './notebookSection';
import { NotebookSection } from './notebookSection';

const TICK_MS = 2_000;

/** The notebook in front, if it runs on a replicated kernel. */
export interface INotebookInFront {
  name: string;
  kernelId: string;
  actions: INotebookActions;
  cell: IActiveCell | null;
}

/** What the panel reads. */
export interface ISidebarSource {
  connection: LiveConnection;
  notebook(): INotebookInFront | null;
  nameKernel: NameKernel;
  trans: ITranslate;
}

function Body(props: { source: ISidebarSource }): React.JSX.Element {
  const { connection, trans, nameKernel } = props.source;
  const { store } = connection;
  const front = props.source.notebook();
  const kernel = front === null ? null : store.kernel(front.kernelId);
  return (
    <>
      {!store.current && <p role="status">{trans('Connecting to the server …')}</p>}
      {front === null || kernel === null ? (
        <p>{trans('The notebook in front does not run on a replicated kernel.')}</p>
      ) : (
        <NotebookSection
          key={front.kernelId}
          name={front.name}
          kernel={kernel}
          store={store}
          actions={front.actions}
          cell={front.cell}
          now={store.serverTime(Date.now() / 1000)}
          trans={trans}
        />
      )}
      <ClusterSection store={store} name={nameKernel} trans={trans} />
      {store.account !== null && <AccountSection account={store.account} trans={trans} />}
    </>
  );
}

/** The panel. */
export class Sidebar extends ReactWidget {
  private _release: (() => void) | null = null;
  private _timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly _source: ISidebarSource) {
    super();
    this.addClass('jp-replkernel-sidebar');
    _source.connection.changed.connect(this.refresh, this);
    _source.connection.interrupted.connect(this.refresh, this);
  }

  override dispose(): void {
    this._rest();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._release ??= this._source.connection.want();
    clearInterval(this._timer);
    this._timer = setInterval(() => {
      this.refresh();
    }, TICK_MS);
    this.update();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._rest();
  }

  protected override render(): React.JSX.Element {
    return <Body source={this._source} />;
  }

  private _rest(): void {
    clearInterval(this._timer);
    this._release?.();
    this._release = null;
  }

  /** Show what holds now, if anybody sees it. */
  refresh(): void {
    if (this._release !== null && this.isVisible && !document.hidden) {
      this.update();
    }
  }
}
