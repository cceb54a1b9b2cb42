// A small form: how many GPUs each cell of the notebook asks for, and how much memory each must have.
import * as React from 'react';

import type { ITranslate } from '../models/line';

const GPUS_MAX = 8;
const VRAM_GB_MAX = 10_000;

/** The form; it shows what holds now until a person chooses otherwise. */
export function GpuRequest(props: {
  gpus: number;
  disabled: boolean;
  request: (gpus: number, vramGb: number) => void;
  trans: ITranslate;
}): React.JSX.Element {
  const { trans } = props;
  const [gpus, setGpus] = React.useState<number | null>(null);
  const [vram, setVram] = React.useState('');
  const wanted = gpus ?? props.gpus;
  return (
    <form
      className="jp-replkernel-request"
      onSubmit={event => {
        event.preventDefault();
        const vramGb = Number(vram);
        props.request(wanted, Number.isFinite(vramGb) ? Math.min(VRAM_GB_MAX, Math.max(0, vramGb)) : 0);
        setGpus(null);
      }}
    >
      <label>
        {trans('GPUs for each cell')}
        <span className="jp-select-wrapper">
          <select
            className="jp-mod-styled"
            value={wanted}
            onChange={event => {
              setGpus(Number(event.target.value));
            }}
          >
            {Array.from({ length: Math.max(GPUS_MAX, props.gpus) + 1 }, (_, number) => (
              <option key={number} value={number}>
                {number === 0 ? trans('none') : number}
              </option>
            ))}
          </select>
        </span>
      </label>
      <label>
        {trans('VRAM, at least (GB)')}
        <input
          className="jp-mod-styled"
          type="number"
          min={0}
          max={VRAM_GB_MAX}
          value={vram}
          disabled={wanted === 0}
          onChange={event => {
            setVram(event.target.value);
          }}
        />
      </label>
      <button type="submit" className="jp-Button jp-mod-styled jp-mod-minimal" disabled={props.disabled}>
        {trans('Request')}
      </button>
    </form>
  );
}
