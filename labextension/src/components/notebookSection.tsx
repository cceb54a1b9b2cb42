// The panel's part about the notebook in front: its GPUs first, what can be done about them, its replicas in a line.
import * as React from 'react';

import type { IKernel } from '../generated/live';
import type { ICellRequest } from '../models/cellRequest';
import { gpusWanted, mostGpus } from '../models/cluster';
import type { NameKernel } from '../models/cluster';
import { formatSeconds } from '../models/facts';
import type { ITranslate } from '../models/line';
import { canCancel, gpusInWords } from '../models/line';
import type { LiveStore } from '../models/live';
import { notebookState, openCell } from '../models/notebookState';
import type { INotebookState } from '../models/notebookState';
import { Cancel } from './cancel';
import { GpuRequest } from './gpuRequest';
import type { IHistoryPart } from './historySection';
import { HistorySection } from './historySection';
import { Replicas } from './replicas';

/** The active cell, and what it asks for itself. */
export interface IActiveCell extends ICellRequest {
  id: string;
  /** The `%%gpu` line that it begins with; empty without. */
  written: string;
}

/** What the section may have done; each resolves with a sentence, or rejects with one. */
export interface INotebookActions {
  hibernate(): Promise<string>;
  resume(): Promise<string>;
  release(): Promise<string>;
  /** Cancel an execution that waits. */
  cancel(msgId: string): Promise<string>;
  /** Have one of the replicas moved to a host. */
  migrate(host: string): Promise<string>;
  request(gpus: number, vramGb: number): Promise<string>;
  /** Write what the active cell asks for into its metadata. */
  setCell(request: ICellRequest): void;
}

/** What the section shows. */
export interface ISection {
  name: string;
  kernel: IKernel;
  store: LiveStore;
  actions: INotebookActions;
  cell: IActiveCell | null;
  history?: IHistoryPart | null;
  nameKernel: NameKernel;
  now: number;
  trans: ITranslate;
}

/** Write what the section says of the state: more than the status bar has room for. */
function stateInWords(state: INotebookState, trans: ITranslate): string {
  return state.doing === 'hibernated'
    ? trans('Hibernated: no process runs. The next cell resumes it with all variables.')
    : state.text;
}

/** Write how long GPUs are kept, and who may have them. */
function keptInWords(trans: ITranslate): string {
  return trans('Kept for the next cell until another notebook needs them, or until you release them.');
}

function Holdings(props: {
  store: LiveStore;
  kernel: IKernel;
  now: number;
  trans: ITranslate;
}): React.JSX.Element {
  const { store, kernel, now, trans } = props;
  if (kernel.holdings.length === 0) {
    const waits = [...store.cells(kernel.kernel_id).values()].some(cell => cell.state === 'waiting');
    return waits ? (
      <></>
    ) : (
      <p>
        {kernel.default_gpus > 0
          ? trans(
              'None is held now: every cell gets %1 when it runs.',
              gpusWanted(kernel.default_gpus, kernel.default_vram_gb, trans)
            )
          : trans('No GPUs yet: choose some below, or write %1 in a cell.', '%%gpu 1')}
      </p>
    );
  }
  return (
    <ul className="jp-replkernel-holdings">
      {kernel.holdings.map(held => (
        <li
          key={held.lease}
          title={[...held.gpus, ...(held.cell === '' ? [keptInWords(trans)] : [])].join('\n')}
        >
          {gpusInWords(held.gpus, store.models, trans, held)} · {held.host} ·{' '}
          {held.cell === '' ? trans('kept between cells') : trans('in use')} ·{' '}
          {formatSeconds(Math.max(0, now - held.since))}
        </li>
      ))}
    </ul>
  );
}

type Act = (action: () => Promise<string>) => void;

/** A button; one that cannot work says why. */
function Button(props: { label: string; why: string; busy: boolean; press: () => void }): React.JSX.Element {
  return (
    <button
      type="button"
      className="jp-Button jp-mod-styled jp-mod-minimal"
      disabled={props.busy || props.why !== ''}
      title={props.why}
      onClick={props.press}
    >
      {props.label}
    </button>
  );
}

function Buttons(props: {
  actions: INotebookActions;
  busy: boolean;
  asleep: boolean;
  kept: boolean;
  act: Act;
  trans: ITranslate;
}): React.JSX.Element {
  const { actions, busy, asleep, kept, act, trans } = props;
  return (
    <div className="jp-replkernel-buttons">
      <Button
        label={trans('Release GPUs')}
        why={kept ? '' : trans('This notebook keeps no GPUs between cells')}
        busy={busy}
        press={() => {
          act(() => actions.release());
        }}
      />
      <Button
        label={trans('Hibernate')}
        why={asleep ? trans('The kernel is hibernated') : ''}
        busy={busy}
        press={() => {
          act(() => actions.hibernate());
        }}
      />
      <Button
        label={trans('Resume')}
        why={asleep ? '' : trans('The kernel is not hibernated')}
        busy={busy}
        press={() => {
          act(() => actions.resume());
        }}
      />
    </div>
  );
}

/** The two forms: GPUs for every cell of the notebook, and for the one in front. */
function Requests(props: ISection & { busy: boolean; act: Act }): React.JSX.Element {
  const { kernel, cell, actions, act, trans } = props;
  const most = mostGpus(props.store.hosts);
  return (
    <>
      <GpuRequest
        key={`${kernel.kernel_id} ${kernel.default_gpus} ${kernel.default_vram_gb}`}
        label={trans('GPUs for every cell')}
        action={trans('Apply to notebook')}
        gpus={kernel.default_gpus}
        vramGb={kernel.default_vram_gb}
        most={most}
        disabled={props.busy}
        trans={trans}
        request={(gpus, vramGb) => {
          act(() => actions.request(gpus ?? 0, vramGb));
        }}
      />
      {cell !== null && (
        <GpuRequest
          key={`${cell.id} ${cell.gpus ?? ''} ${cell.vramGb} ${cell.written}`}
          label={trans('GPUs for this cell')}
          action={trans('Apply to cell')}
          inherit={cell.written === '' ? trans('as above') : cell.written}
          gpus={cell.gpus}
          vramGb={cell.vramGb}
          most={most}
          disabled={false}
          trans={trans}
          request={(gpus, vramGb) => {
            actions.setCell({ gpus, vramGb });
          }}
        />
      )}
    </>
  );
}

/** The section. */
export function NotebookSection(props: ISection): React.JSX.Element {
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
  const state = notebookState(store, kernel.kernel_id, props.nameKernel, trans, props.now);
  const asleep = state.doing === 'hibernated';
  const waiting = openCell(store, kernel.kernel_id);
  const cancel =
    waiting !== null && store.current && canCancel(waiting, store.cells(kernel.kernel_id).values())
      ? () => {
          act(() => actions.cancel(waiting.msg_id));
        }
      : null;
  const kept = kernel.holdings.some(held => held.cell === '');
  return (
    <section aria-labelledby="jp-replkernel-notebook">
      <h2 id="jp-replkernel-notebook">{props.name}</h2>
      <p>
        {stateInWords(state, trans)} {cancel !== null && <Cancel press={cancel} trans={trans} />}
      </p>
      <h3>{trans('GPUs')}</h3>
      {kernel.scheduler_trouble !== '' && <p className="jp-replkernel-trouble">{kernel.scheduler_trouble}</p>}
      <Holdings store={store} kernel={kernel} now={props.now} trans={trans} />
      <Requests {...props} busy={busy} act={act} />
      <Buttons actions={actions} busy={busy} asleep={asleep} kept={kept} act={act} trans={trans} />
      <p className="jp-replkernel-said" role="status" aria-live="polite">
        {said}
      </p>
      {!asleep && props.history && <HistorySection part={props.history} trans={trans} />}
      {!asleep && (
        <Replicas
          kernel={kernel}
          hosts={store.hosts}
          disabled={busy}
          migrate={host => {
            act(() => actions.migrate(host));
          }}
          trans={trans}
        />
      )}
      {kernel.checkpoint_trouble !== '' && (
        <p className="jp-replkernel-trouble">{kernel.checkpoint_trouble}</p>
      )}
    </section>
  );
}
