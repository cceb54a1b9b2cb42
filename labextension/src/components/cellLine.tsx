// The line under a cell: what its newest execution does or did, where, and whether it is safe; opened, its steps.
// User data reaches the page as text, never as markup.
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IExecution, IPin } from '../generated/live';
import type { ICellRequest } from '../models/cellRequest';
import { formatSeconds } from '../models/facts';
import type { IMark, ITranslate } from '../models/line';
import { describeLine, leasedFor, steps } from '../models/line';
import { Cancel } from './cancel';
import { GpuRequest } from './gpuRequest';
import { GpuIcon, StateIcon } from './icons';
import { Timeline } from './timeline';

/** What the lines of one notebook read. */
export interface ILineSource {
  execution(cellId: string): IExecution | null;
  /** Whether the kernel of an execution has ended. */
  ended(execution: IExecution): boolean;
  /** What cancels an execution that waits; null where it cannot be cancelled by itself. */
  cancel(execution: IExecution): (() => void) | null;
  /** What pins the notebook, if this execution's replica is the one that it is pinned to. */
  pins(execution: IExecution): readonly IPin[];
  /** What the cell asks for itself; null if it is gone. */
  request(cellId: string): ICellRequest | null;
  /** Write what the cell asks for into its metadata. */
  setRequest(cellId: string, request: ICellRequest): void;
  /** The `%%gpu` line that the cell begins with; empty without. */
  written(cellId: string): string;
  /** What the cell asks for itself, in words; empty where it asks for what its notebook does. */
  asks(cellId: string): string;
  /** Who holds the GPUs that an execution waits for, as far as that may be seen. */
  holder(execution: IExecution): string;
  /** How many GPUs a cell may have. */
  most(): number;
  /** Cells whose line is open, also while it is made anew. */
  readonly opened: Set<string>;
  /** The models of GPUs by their UUIDs. */
  models(): ReadonlyMap<string, string>;
  /** Whether the cell holds the code that this execution ran: in a copy of the notebook it may not. */
  isCodeOf(execution: IExecution): boolean;
  /** Whether what the execution changed was undone. */
  isUndone(execution: IExecution): boolean;
  /** The server's Unix time. */
  now(): number;
  trans: ITranslate;
}

function Mark({ mark, kind }: { mark: IMark; kind: string }): React.JSX.Element {
  return (
    <span className={`jp-replkernel-mark jp-mod-${kind} jp-mod-${mark.icon}`} title={mark.title}>
      <StateIcon icon={mark.icon} />
      {mark.text}
    </span>
  );
}

function Facts(props: { source: ILineSource; execution: IExecution }): React.JSX.Element {
  const { source, execution } = props;
  const { trans } = source;
  const pins = source.pins(execution);
  const leased = leasedFor(execution, source.now());
  return (
    <>
      <Timeline steps={steps(execution, source.now(), trans)} trans={trans} />
      <dl>
        {execution.gpus.length > 0 && (
          <>
            <dt>{trans('GPUs')}</dt>
            <dd>
              {execution.gpus.join(', ')}
              {leased !== null && ` · ${trans('leased for %1', formatSeconds(leased))}`}
            </dd>
          </>
        )}
        {pins.length > 0 && (
          <>
            <dt>{trans('Pinned to this replica')}</dt>
            <dd>{pins.map(pin => `${pin.name} (${pin.reason})`).join('; ')}</dd>
          </>
        )}
        {execution.trouble !== '' && (
          <>
            <dt>{trans('Scheduler')}</dt>
            <dd>{execution.trouble}</dd>
          </>
        )}
      </dl>
    </>
  );
}

function Details(props: {
  source: ILineSource;
  cellId: string;
  execution: IExecution | null;
  id: string;
}): React.JSX.Element {
  const { source, cellId, execution } = props;
  const { trans } = source;
  const request = source.request(cellId);
  const written = source.written(cellId);
  return (
    <div className="jp-replkernel-details" id={props.id}>
      {execution !== null && <Facts source={source} execution={execution} />}
      {request !== null && (
        <GpuRequest
          key={`${request.gpus ?? ''} ${request.vramGb}`}
          label={trans('GPUs for this cell')}
          action={trans('Apply to cell')}
          inherit={written === '' ? trans('as its notebook') : written}
          gpus={request.gpus}
          vramGb={request.vramGb}
          most={source.most()}
          disabled={false}
          trans={trans}
          request={(gpus, vramGb) => {
            source.setRequest(cellId, { gpus, vramGb });
          }}
        />
      )}
    </div>
  );
}

/** What is pinned is on one replica alone, whatever else is durable. */
function butForPins(safety: IMark, pins: readonly IPin[], trans: ITranslate): IMark {
  return pins.length === 0 || safety.icon !== 'durable'
    ? safety
    : {
        ...safety,
        text: trans('durable, but for what is pinned'),
        title: trans('Pinned variables are lost if their replica is')
      };
}

/** What the cell asks for itself. */
function Badge({ source, cellId }: { source: ILineSource; cellId: string }): React.JSX.Element | null {
  const asks = source.asks(cellId);
  return asks === '' ? null : (
    <span className="jp-replkernel-badge" title={source.trans('This cell has a GPU request of its own')}>
      <GpuIcon />
      {asks}
    </span>
  );
}

/** What its newest execution does or did. */
function Told({ source, execution }: { source: ILineSource; execution: IExecution }): React.JSX.Element {
  const { trans } = source;
  const line = describeLine(execution, source.models(), source.now(), trans, source.holder(execution));
  const pins = source.pins(execution);
  const cancel = source.cancel(execution);
  return (
    <>
      <Mark mark={line.state} kind="state" />
      {line.parts.map(part => (
        <span key={part} className="jp-replkernel-part">
          {part}
        </span>
      ))}
      {cancel !== null && <Cancel press={cancel} trans={trans} />}
      {pins.length > 0 && (
        <span className="jp-replkernel-part" title={pins.map(pin => `${pin.name}: ${pin.reason}`).join('\n')}>
          {trans('pinned: %1', pins.map(pin => pin.name).join(', '))}
        </span>
      )}
      {source.ended(execution) && (
        <span className="jp-replkernel-part" title={trans('Its variables are gone: run the cell again')}>
          {trans('its kernel has ended')}
        </span>
      )}
      {!source.isCodeOf(execution) && (
        <span
          className="jp-replkernel-part"
          title={trans('The cell was edited after it ran, or another notebook on this kernel ran its own')}
        >
          {execution.began_at === null && execution.state !== 'done'
            ? trans('waits with different code')
            : trans('ran different code')}
        </span>
      )}
      {source.isUndone(execution) && (
        <span
          className="jp-replkernel-part jp-mod-undone"
          title={trans('The changes of this cell were undone: run it again, or redo them in the history')}
        >
          {trans('not in the current state')}
        </span>
      )}
      {line.safety !== null && <Mark mark={butForPins(line.safety, pins, trans)} kind="safety" />}
    </>
  );
}

function Line(props: {
  source: ILineSource;
  cellId: string;
  execution: IExecution | null;
}): React.JSX.Element {
  const { source, cellId, execution } = props;
  const { trans } = source;
  const [open, setOpen] = React.useState(source.opened.has(cellId));
  const id = `jp-replkernel-${execution?.msg_id ?? cellId}`;
  return (
    <>
      <div className="jp-replkernel-line-row">
        <button
          type="button"
          className="jp-replkernel-toggle"
          aria-expanded={open}
          aria-controls={id}
          aria-label={execution === null ? trans('GPUs for this cell') : trans('Steps of this execution')}
          onClick={() => {
            source.opened[open ? 'delete' : 'add'](cellId);
            setOpen(!open);
          }}
        >
          <span aria-hidden="true">{open ? '▾' : '▸'}</span>
        </button>
        <Badge source={source} cellId={cellId} />
        {execution !== null && <Told source={source} execution={execution} />}
      </div>
      {open && <Details source={source} cellId={cellId} execution={execution} id={id} />}
    </>
  );
}

/** The widget in the cell's layout; it shows nothing while its cell has not run and asks for nothing itself. */
export class CellLine extends ReactWidget {
  constructor(
    private readonly _cellId: string,
    private readonly _source: ILineSource
  ) {
    super();
    this.addClass('jp-replkernel-line');
  }

  protected override render(): React.JSX.Element | null {
    const execution = this._source.execution(this._cellId);
    const shown = execution !== null || this._source.asks(this._cellId) !== '';
    this.setHidden(!shown);
    return shown ? <Line source={this._source} cellId={this._cellId} execution={execution} /> : null;
  }
}
