// The GPU chooser in a notebook's toolbar: how many GPUs every cell gets. It shows what the kernel says that holds.
import { HTMLSelect, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { ISignal } from '@lumino/signaling';
import * as React from 'react';

import { gpuChoices, gpusWanted } from '../models/cluster';
import type { ITranslate } from '../models/line';
import { gpuIcon } from './panelIcon';

const MEMORY = 'memory';

/** What the chooser reads, and what it may have done. */
export interface IChooserSource {
  readonly changed: ISignal<unknown, unknown>;
  /** Whether the notebook runs on a replicated kernel. */
  shown(): boolean;
  /** What every cell gets; null while nobody knows. */
  holds(): { gpus: number; vramGb: number } | null;
  /** How many GPUs may be chosen. */
  most(): number;
  choose(gpus: number): void;
  /** Ask the person how much memory each GPU must have. */
  askForMemory(): void;
  trans: ITranslate;
}

function Chooser({ source }: { source: IChooserSource }): React.JSX.Element | null {
  if (!source.shown()) {
    return null;
  }
  const { trans } = source;
  const holds = source.holds();
  const gpus = holds?.gpus ?? 0;
  const title =
    holds === null
      ? trans('The kernel is starting')
      : trans('GPUs that every cell of this notebook gets, unless it asks for a different number');
  return (
    <span className="jp-replkernel-chooser" title={title}>
      <gpuIcon.react tag="span" aria-hidden="true" />
      <HTMLSelect
        aria-label={trans('GPUs for every cell')}
        disabled={holds === null}
        value={String(gpus)}
        onChange={event => {
          if (event.target.value === MEMORY) {
            source.askForMemory();
          } else {
            source.choose(Number(event.target.value));
          }
        }}
      >
        {gpuChoices(gpus, source.most()).map(number => (
          <option key={number} value={String(number)}>
            {gpusWanted(number, number === gpus ? (holds?.vramGb ?? 0) : 0, trans)}
          </option>
        ))}
        <option value={MEMORY} disabled={gpus === 0}>
          {trans('Memory …')}
        </option>
      </HTMLSelect>
    </span>
  );
}

/** The chooser as a toolbar's item. */
export class GpuChooser extends ReactWidget {
  constructor(private readonly _source: IChooserSource) {
    super();
    this.addClass('jp-replkernel-chooser-item');
  }

  protected override render(): React.JSX.Element {
    return <UseSignal signal={this._source.changed}>{() => <Chooser source={this._source} />}</UseSignal>;
  }
}
