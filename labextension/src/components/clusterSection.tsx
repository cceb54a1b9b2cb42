// The panel's part about the cluster: how many GPUs do what, the grid, who of one's own waits, one's account.
import * as React from 'react';

import type { IAccount, ILease, IWaiting } from '../generated/live';
import type { GpuUse, NameKernel } from '../models/cluster';
import { bookedInWords, count, countsInWords, LETTERS, useInWords, whose } from '../models/cluster';
import { formatHours, formatMoney } from '../models/facts';
import type { ITranslate } from '../models/line';
import type { LiveStore } from '../models/live';
import { hoursUsed, waitsNow } from '../models/usage';
import type { IHolder } from './gpuGrid';
import { GpuGrid } from './gpuGrid';
import { StateIcon } from './icons';

const QUEUE_SHOWN_MAX = 20;
const LEGEND: GpuUse[] = ['used', 'kept', 'job', 'asked', 'away'];

function Queue(props: {
  store: LiveStore;
  now: number;
  name: NameKernel;
  trans: ITranslate;
}): React.JSX.Element {
  const { store, now, name, trans } = props;
  const { queue } = store;
  const more = queue.length - QUEUE_SHOWN_MAX;
  return (
    <>
      <h3>{queue.every(one => one.yours) ? trans('Your waiting cells') : trans('Waiting cells')}</h3>
      <ol className="jp-replkernel-queue">
        {waitsNow(store, now, name, trans)
          .slice(0, QUEUE_SHOWN_MAX)
          .map(({ key, who, gpus, place }) => (
            <li key={key}>
              {who}: {[gpus, place].filter(part => part !== '').join(' · ')}
            </li>
          ))}
      </ol>
      {more > 0 && <p>{trans('and %1 more', more)}</p>}
    </>
  );
}

/** How many wait: never fewer than are listed, whichever was told last. */
export function allWaiting(told: number, queue: readonly IWaiting[]): number {
  return Math.max(told, queue.length);
}

/** Write how many cells of everybody wait for GPUs. */
function waitingInWords(waiting: number, trans: ITranslate): string {
  if (waiting === 0) {
    return trans('No cell is waiting for GPUs.');
  }
  return waiting === 1
    ? trans('1 cell is waiting for GPUs.')
    : trans('%1 cells are waiting for GPUs.', waiting);
}

/** The cluster. GPUs of the notebook in front are framed; those of all one's notebooks where none is in front. */
export function ClusterSection(props: {
  store: LiveStore;
  /** The kernel of the notebook in front; empty without. */
  inFront?: string;
  /** The server's Unix time. */
  now?: number;
  name: NameKernel;
  trans: ITranslate;
}): React.JSX.Element {
  const { store, name, trans } = props;
  const { hosts, queue, scheduler } = store;
  const inFront = props.inFront ?? '';
  const leases = new Map(store.leases.map(lease => [lease.lease, lease]));
  const whoHolds = (id: string): IHolder | null => {
    const lease = leases.get(id);
    if (lease === undefined) {
      return null;
    }
    const framed = inFront === '' ? lease.yours : lease.kernel_id === inFront;
    return { name: whose(lease, name, trans), yours: lease.yours, framed };
  };
  const gpus = hosts.some(host => host.gpus.length > 0);
  return (
    <section aria-labelledby="jp-replkernel-cluster">
      <h2 id="jp-replkernel-cluster">{trans('Cluster')}</h2>
      {scheduler.url === '' && (
        <p>{trans('No scheduler runs yet: the first cell that asks for GPUs starts it.')}</p>
      )}
      {scheduler.trouble !== '' && (
        <p className="jp-replkernel-trouble">
          {trans('The scheduler is out of reach: %1.', scheduler.trouble)}{' '}
          {trans('Cells without GPUs run, and you keep the GPUs you have.')}
        </p>
      )}
      {hosts.length === 0 ? (
        <p>{trans('No host yet: the first notebook with a replicated kernel starts one.')}</p>
      ) : (
        <p>
          {hosts.length === 1 ? trans('1 host') : trans('%1 hosts', hosts.length)}
          {': '}
          {countsInWords(count(hosts), trans)}
        </p>
      )}
      {hosts.length > 0 && !gpus && <p>{trans('None of the hosts has a GPU: cells run without.')}</p>}
      {hosts.length > 0 && <GpuGrid hosts={hosts} whoHolds={whoHolds} trans={trans} />}
      {gpus && (
        <p className="jp-replkernel-legend">
          {LEGEND.map(use => `${LETTERS[use]} ${useInWords(use, trans)}`).join(' · ')} ·{' '}
          {inFront === '' ? trans('framed: yours') : trans('framed: this notebook’s')}
        </p>
      )}
      {scheduler.waiting !== null && <p>{waitingInWords(allWaiting(scheduler.waiting, queue), trans)}</p>}
      {queue.length > 0 && <Queue store={store} now={props.now ?? Infinity} name={name} trans={trans} />}
      {(scheduler.booked ?? []).map(one => (
        <p key={`${one.begins} ${one.whom}`}>{bookedInWords(one, trans)}</p>
      ))}
    </section>
  );
}

/** What the user has used, saved and may have. */
export function AccountSection(props: {
  account: IAccount;
  /** GPUs that are held now, as they are told. */
  leases: readonly ILease[];
  /** The server's Unix time. */
  now: number;
  trans: ITranslate;
}): React.JSX.Element {
  const { account, leases, now, trans } = props;
  const of = (value: string, limit: number | string | null): string =>
    limit === null ? value : trans('%1 of %2', value, limit);
  const full = (used: number, limit: number | null): React.JSX.Element | null =>
    limit !== null && used >= limit ? (
      <span className="jp-replkernel-mark jp-mod-waiting">
        <StateIcon icon="waiting" />
        {trans('quota reached')}
      </span>
    ) : null;
  return (
    <section aria-labelledby="jp-replkernel-account">
      <h2 id="jp-replkernel-account">{trans('You')}</h2>
      <dl>
        <dt title={trans('From getting GPUs to giving them back, also while they are kept between cells')}>
          {trans('GPU-hours used')}
        </dt>
        <dd>{formatHours(hoursUsed(account, leases, now))}</dd>
        <dt
          title={trans(
            'How many more GPU-hours it would have cost to hold the GPUs from the first cell to the last'
          )}
        >
          {trans('Saved compared with holding a GPU all session')}
        </dt>
        <dd>{formatHours(account.saved_gpu_hours)}</dd>
        <dt>{trans('This month')}</dt>
        <dd>
          {of(formatHours(account.gpu_hours_month), account.gpu_hours_month_quota)}{' '}
          {full(account.gpu_hours_month, account.gpu_hours_month_quota)}
        </dd>
        {account.spent_month !== null && (
          <>
            <dt title={trans('What your cells and the replicas that stand by for them have cost')}>
              {trans('Spent this month')}
            </dt>
            <dd>
              {of(
                formatMoney(account.spent_month, account.currency),
                account.budget_month === null ? null : formatMoney(account.budget_month, account.currency)
              )}{' '}
              {full(account.spent_month, account.budget_month)}
            </dd>
          </>
        )}
        <dt>{trans('GPUs now')}</dt>
        <dd>
          {of(String(account.gpus_held), account.gpu_quota)} {full(account.gpus_held, account.gpu_quota)}
        </dd>
      </dl>
    </section>
  );
}
