// Hosts and their GPUs as rows of boxes. Only the rows that are seen are in the page, so that a large cluster
// scrolls as a small one does.
import * as React from 'react';

import type { IGpu, IHost } from '../generated/live';
import { count, countsInWords, LETTERS, rowsSeen, useInWords, useOf } from '../models/cluster';
import { formatBytes } from '../models/facts';
import type { ITranslate } from '../models/line';

const ROW_PX = 24;
const ROWS_MAX = 14;

/** Who holds a GPU, for people. */
export interface IHolder {
  name: string;
  yours: boolean;
  /** Whether its box has a frame. */
  framed: boolean;
}

/** Who holds a lease; null when it is not known. */
export type WhoHolds = (lease: string) => IHolder | null;

function gpuTitle(host: IHost, gpu: IGpu, holder: IHolder | null, trans: ITranslate): string {
  const use = useOf(host, gpu);
  const parts = [`${gpu.model || trans('GPU')} ${gpu.uuid}`, useInWords(use, trans)];
  if (holder !== null) {
    parts.push(holder.yours ? trans('yours: %1', holder.name) : holder.name);
  } else if (gpu.lease === '' && (use === 'used' || use === 'kept' || use === 'job' || use === 'asked')) {
    parts.push(trans('another user’s'));
  }
  if (gpu.utilisation !== null) {
    parts.push(trans('%1 % busy', Math.round(gpu.utilisation * 100)));
  }
  if (gpu.memory_used_bytes !== null) {
    parts.push(trans('%1 of %2', formatBytes(gpu.memory_used_bytes), formatBytes(gpu.memory_bytes)));
  }
  return parts.join('\n');
}

function Gpu(props: { host: IHost; gpu: IGpu; whoHolds: WhoHolds; trans: ITranslate }): React.JSX.Element {
  const { host, gpu } = props;
  const use = useOf(host, gpu);
  const holder = gpu.lease === '' ? null : props.whoHolds(gpu.lease);
  const busy = gpu.utilisation === null ? 0 : Math.min(1, Math.max(0, gpu.utilisation));
  return (
    <span
      className={`jp-replkernel-gpu jp-mod-${use}${holder?.framed === true ? ' jp-mod-mine' : ''}`}
      title={gpuTitle(host, gpu, holder, props.trans)}
    >
      <span className="jp-replkernel-gpu-busy" style={{ height: `${Math.round(busy * 100)}%` }} />
      <span className="jp-replkernel-gpu-letter">{LETTERS[use]}</span>
    </span>
  );
}

/** The grid. */
export function GpuGrid(props: {
  hosts: readonly IHost[];
  whoHolds: WhoHolds;
  trans: ITranslate;
}): React.JSX.Element {
  const { hosts, whoHolds, trans } = props;
  const [top, setTop] = React.useState(0);
  const height = Math.min(hosts.length, ROWS_MAX) * ROW_PX;
  const { first, end } = rowsSeen(top, height, ROW_PX, hosts.length);
  return (
    <div
      className="jp-replkernel-scroll"
      tabIndex={0}
      role="group"
      aria-label={trans('Hosts and their GPUs')}
      style={{ height }}
      onScroll={event => {
        setTop(event.currentTarget.scrollTop);
      }}
    >
      <ul className="jp-replkernel-hosts" style={{ height: hosts.length * ROW_PX }}>
        {hosts.slice(first, end).map((host, index) => (
          <li
            key={host.name}
            aria-setsize={hosts.length}
            aria-posinset={first + index + 1}
            style={{ top: (first + index) * ROW_PX, height: ROW_PX }}
          >
            <span className="jp-replkernel-host" title={host.name}>
              {host.name}
            </span>
            <span className="jp-replkernel-spoken">{countsInWords(count([host]), trans)}</span>
            <span className="jp-replkernel-gpus" aria-hidden="true">
              {host.gpus.map(gpu => (
                <Gpu key={gpu.uuid} host={host} gpu={gpu} whoHolds={whoHolds} trans={trans} />
              ))}
            </span>
            {host.state !== 'up' && (
              <span className="jp-replkernel-host-state" title={host.why}>
                {host.state}
              </span>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
