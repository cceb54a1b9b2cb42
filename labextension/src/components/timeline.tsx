// The steps of one execution as a list: a name, how long it took, and a bar that shows when.
import * as React from 'react';

import { formatSeconds } from '../models/facts';
import type { IStep, ITranslate } from '../models/line';

/** The steps, drawn to one scale. */
export function Timeline(props: { steps: readonly IStep[]; trans: ITranslate }): React.JSX.Element {
  const { steps, trans } = props;
  const last = steps.at(-1);
  const whole = Math.max(0.001, last === undefined ? 0 : last.from + last.seconds);
  const share = (seconds: number): string => `${((100 * seconds) / whole).toFixed(2)}%`;
  return (
    <ol className="jp-replkernel-steps" aria-label={trans('Steps of this execution')}>
      {steps.map(step => (
        <li key={step.name} title={step.title}>
          <span className="jp-replkernel-step-name">{step.label}</span>
          <span className="jp-replkernel-step-time">
            {formatSeconds(step.seconds)}
            {step.open ? ` ${trans('so far')}` : ''}
          </span>
          <span className="jp-replkernel-step-track" aria-hidden="true">
            <span
              className={`jp-replkernel-step-bar jp-mod-${step.name}`}
              style={{ marginLeft: share(step.from), width: share(step.seconds) }}
            />
          </span>
        </li>
      ))}
    </ol>
  );
}
