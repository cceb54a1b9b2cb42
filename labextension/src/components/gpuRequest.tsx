// A small form: how many GPUs are asked for, and how much memory each must have.
import * as React from 'react';

import { gpuChoices, isPart, numberOfGpus } from '../models/cluster';
import type { ITranslate } from '../models/line';

const VRAM_GB_MAX = 10_000;
const INHERIT = 'inherit';

function inWords(gpus: number, trans: ITranslate): string {
  if (Number.isNaN(gpus)) {
    return trans('not understood');
  }
  return gpus === 0 ? trans('none') : numberOfGpus(gpus);
}

/** The form; it shows what holds now until a person chooses otherwise. `inherit` names that nothing is said. */
export function GpuRequest(props: {
  label: string;
  action: string;
  inherit?: string;
  gpus: number | null;
  vramGb: number;
  /** How many may be chosen. */
  most: number;
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
        const count = Number(wanted);
        if (wanted !== INHERIT && !(isPart(count) || (Number.isInteger(count) && count >= 0))) {
          return; // What is not understood is not written anew.
        }
        const given = Number(vram);
        const vramGb = Number.isFinite(given) && !none ? Math.min(VRAM_GB_MAX, Math.max(0, given)) : 0;
        props.request(wanted === INHERIT ? null : count, vramGb);
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
          {gpuChoices(props.gpus, props.most).map(number => (
            <option key={number} value={String(number)}>
              {inWords(number, trans)}
            </option>
          ))}
        </select>
      </label>
      <label>
        {trans('GiB each, at least')}
        <input
          className="jp-mod-styled"
          type="number"
          placeholder={trans('any')}
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
