// The line under a cell: what its newest execution does or did, where, and whether it is safe; opened, its steps.
// User data reaches the page as text, never as markup.
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { IExecution, IPin } from '../generated/live';
import type { ICellRequest } from '../models/cellRequest';
import { formatSeconds } from '../models/facts';
import type { IMark, ITranslate } from '../models/line';
import { describeLine, leasedFor, steps } from '../models/line';
import { GpuRequest } from './gpuRequest';
import { StateIcon } from './icons';
import { Timeline } from './timeline';

/** What the lines of one notebook read. */
export interface ILineSource {
  execution(cellId: string): IExecution | null;
  /** What pins the notebook, if this execution's replica is the one that it is pinned to. */
  pins(execution: IExecution): readonly IPin[];
  /** What the cell asks for itself; null if it is gone. */
  request(cellId: string): ICellRequest | null;
  /** Write what the cell asks for into its metadata. */
  setRequest(cellId: string, request: ICellRequest): void;
  /** Cells whose line is open, also while it is made anew. */
  readonly opened: Set<string>;
  /** The models of GPUs by their UUIDs. */
  models(): ReadonlyMap<string, string>;
  /** Whether the cell holds the code that this execution ran: in a copy of the notebook it may not. */
  isCodeOf(execution: IExecution): boolean;
  /** Why what is known may not hold now, in words; empty when it does. */
  doubt(): string;
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

function Details(props: { source: ILineSource; execution: IExecution; id: string }): React.JSX.Element {
  const { source, execution, id } = props;
  const { trans } = source;
  const pins = source.pins(execution);
  const request = source.request(execution.cell_id);
  const leased = leasedFor(execution, source.now());
  return (
    <div className="jp-replkernel-details" id={id}>
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
      {request !== null && (
        <GpuRequest
          key={`${request.gpus ?? ''} ${request.vramGb}`}
          label={trans('GPUs for this cell')}
          action={trans('Set')}
          inherit={trans('as its notebook')}
          gpus={request.gpus}
          vramGb={request.vramGb}
          disabled={false}
          trans={trans}
          request={(gpus, vramGb) => {
            source.setRequest(execution.cell_id, { gpus, vramGb });
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
        title: trans('What is pinned is lost if its replica is')
      };
}

function Line(props: { source: ILineSource; execution: IExecution }): React.JSX.Element {
  const { source, execution } = props;
  const [open, setOpen] = React.useState(source.opened.has(execution.cell_id));
  const line = describeLine(execution, source.models(), source.now(), source.trans);
  const pins = source.pins(execution);
  const doubt = source.doubt();
  const id = `jp-replkernel-${execution.msg_id}`;
  return (
    <>
      <div className="jp-replkernel-line-row">
        <button
          type="button"
          className="jp-replkernel-toggle"
          aria-expanded={open}
          aria-controls={id}
          aria-label={source.trans('Steps of this execution')}
          onClick={() => {
            source.opened[open ? 'delete' : 'add'](execution.cell_id);
            setOpen(!open);
          }}
        >
          <span aria-hidden="true">{open ? '▾' : '▸'}</span>
        </button>
        <Mark mark={line.state} kind="state" />
        {line.parts.map(part => (
          <span key={part} className="jp-replkernel-part">
            {part}
          </span>
        ))}
        {pins.length > 0 && (
          <span
            className="jp-replkernel-part"
            title={pins.map(pin => `${pin.name}: ${pin.reason}`).join('\n')}
          >
            {source.trans('pinned: %1', pins.map(pin => pin.name).join(', '))}
          </span>
        )}
        {!source.isCodeOf(execution) && (
          <span
            className="jp-replkernel-part"
            title={source.trans('The cell was edited since, or another notebook of this kernel ran its own')}
          >
            {source.trans('other code than this')}
          </span>
        )}
        {doubt !== '' && <span className="jp-replkernel-part">{doubt}</span>}
        {line.safety !== null && <Mark mark={butForPins(line.safety, pins, source.trans)} kind="safety" />}
      </div>
      {open && <Details source={source} execution={execution} id={id} />}
    </>
  );
}

/** The widget in the cell's layout; it shows nothing while its cell has no execution. */
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
    this.setHidden(execution === null);
    return execution === null ? null : <Line source={this._source} execution={execution} />;
  }
}
