// A small form: how many GPUs are asked for, and how much memory each must have.
import * as React from 'react';

import type { ITranslate } from '../models/line';

const GPUS_MAX = 8;
const VRAM_GB_MAX = 10_000;
const INHERIT = 'inherit';

/** The form; it shows what holds now until a person chooses otherwise. `inherit` names that nothing is said. */
export function GpuRequest(props: {
  label: string;
  action: string;
  inherit?: string;
  gpus: number | null;
  vramGb: number;
  disabled: boolean;
  request: (gpus: number | null, vramGb: number) => void;
  trans: ITranslate;
}): React.JSX.Element {
  const { trans } = props;
  const now = props.gpus === null ? INHERIT : String(props.gpus);
  const [chosen, setChosen] = React.useState<string | null>(null);
  const [vram, setVram] = React.useState(props.vramGb === 0 ? '' : String(props.vramGb));
  const wanted = chosen ?? now;
  const none = wanted === INHERIT || wanted === '0';
  return (
    <form
      className="jp-replkernel-request"
      onSubmit={event => {
        event.preventDefault();
        const given = Number(vram);
        const vramGb = Number.isFinite(given) && !none ? Math.min(VRAM_GB_MAX, Math.max(0, given)) : 0;
        props.request(wanted === INHERIT ? null : Number(wanted), vramGb);
        setChosen(null);
      }}
    >
      <label>
        {props.label}
        <select
          className="jp-mod-styled"
          value={wanted}
          onChange={event => {
            setChosen(event.target.value);
          }}
        >
          {props.inherit !== undefined && <option value={INHERIT}>{props.inherit}</option>}
          {Array.from({ length: Math.max(GPUS_MAX, props.gpus ?? 0) + 1 }, (_, number) => (
            <option key={number} value={number}>
              {number === 0 ? trans('none') : number}
            </option>
          ))}
        </select>
      </label>
      <label>
        {trans('VRAM, at least (GB)')}
        <input
          className="jp-mod-styled"
          type="number"
          min={0}
          max={VRAM_GB_MAX}
          value={vram}
          disabled={none}
          onChange={event => {
            setVram(event.target.value);
          }}
        />
      </label>
      <button type="submit" className="jp-Button jp-mod-styled jp-mod-minimal" disabled={props.disabled}>
        {props.action}
      </button>
    </form>
  );
}
