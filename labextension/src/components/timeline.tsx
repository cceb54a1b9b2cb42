// The steps of one execution as a list: a name, how long it took, and a bar that shows when. Those that took no time
// that could be told are named below.
import * as React from 'react';

import { formatSeconds } from '../models/facts';
import type { IStep, ITranslate } from '../models/line';

/** What took less would be told as 0 ms. */
const SHOWN_S = 0.0005;

/** The steps, drawn to one scale. */
export function Timeline(props: { steps: readonly IStep[]; trans: ITranslate }): React.JSX.Element {
  const { steps, trans } = props;
  const last = steps.at(-1);
  const whole = Math.max(0.001, last === undefined ? 0 : last.from + last.seconds);
  const share = (seconds: number): string => `${((100 * seconds) / whole).toFixed(2)}%`;
  const shown = steps.filter(step => step.open || step.seconds >= SHOWN_S);
  const short = steps.filter(step => !shown.includes(step)).map(step => step.label);
  return (
    <>
      <ol className="jp-replkernel-steps" aria-label={trans('Steps of this execution')}>
        {shown.map(step => (
          <li key={step.name} title={step.title}>
            <span className="jp-replkernel-step-name">{step.label}</span>
            <span className="jp-replkernel-step-time">
              {formatSeconds(step.seconds)}
              {step.open ? ` ${trans('so far')}` : ''}
            </span>
            <span className="jp-replkernel-step-track" aria-hidden="true">
              <span
                className={`jp-replkernel-step-bar jp-mod-${step.name}`}
                style={{ marginInlineStart: share(step.from), width: share(step.seconds) }}
              />
            </span>
          </li>
        ))}
      </ol>
      {short.length > 0 && (
        <p className="jp-replkernel-short">{trans('Less than 1 ms: %1', short.join(', '))}</p>
      )}
    </>
  );
}
