// What the panel's parts and the timeline show of what they are given. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

register('./endings.mjs', import.meta.url);
const { AccountSection, ClusterSection } = await import('../lib/components/clusterSection.js');
const { GpuGrid } = await import('../lib/components/gpuGrid.js');
const { HistorySection } = await import('../lib/components/historySection.js');
const { GpuRequest } = await import('../lib/components/gpuRequest.js');
const { NotebookSection } = await import('../lib/components/notebookSection.js');
const { SidebarBody } = await import('../lib/components/sidebarBody.js');
const { Timeline } = await import('../lib/components/timeline.js');
const { LiveStore } = await import('../lib/models/live.js');

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const html = (component, props) => renderToStaticMarkup(React.createElement(component, { trans, ...props }));
/** What a person reads of it. */
const text = (component, props) =>
  html(component, props)
    .replace(/<[^>]*>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();

const gpu = (uuid, more = {}) => ({
  uuid,
  model: 'H100',
  memory_bytes: 80e9,
  memory_used_bytes: 40e9,
  utilisation: 0.5,
  state: 'idle',
  lease: '',
  ...more
});
const host = (name, ...gpus) => ({ name, state: 'up', gpus });
const scheduler = { url: 'u', trouble: '', waiting: 2, subscription_ratio: 1.5, booked: [] };
const snapshot = {
  type: 'snapshot',
  seq: 0,
  now: 0,
  kernels: [],
  executions: [],
  hosts: [],
  leases: [],
  queue: [],
  scheduler,
  account: null
};
const kernel = {
  kernel_id: 'k',
  rest: 'awake',
  state: 'idle',
  answers: true,
  default_gpus: 0,
  default_vram_gb: 0,
  checkpoint_trouble: '',
  scheduler_trouble: '',
  move: null,
  holdings: [{ lease: 'l', host: 'a', gpus: ['g1'], cell: '', since: 4 }],
  replicas: [
    {
      replica: 'r1',
      host: 'a',
      role: 'executor',
      raft_role: 'leader',
      lag: 0,
      state_bytes: 2048,
      last_death: '',
      pins: [{ name: 's', reason: 'a socket' }]
    },
    {
      replica: 'r2',
      host: 'b',
      role: 'standby',
      raft_role: '',
      lag: 3,
      state_bytes: 0,
      last_death: '',
      pins: []
    }
  ]
};
const store = (more = {}) => {
  const made = new LiveStore();
  made.apply({ ...snapshot, ...more }, 0);
  return made;
};

test('the cluster names what its GPUs do, and who waits: never fewer than are listed', () => {
  const hosts = [host('a', gpu('g1', { state: 'active', lease: 'l' }), gpu('g2', { state: 'lingering' }))];
  const mine = { user: 'carol', notebook: 'work/old.ipynb', yours: true };
  const queue = [{ request: 'q', kernel_id: 'k', gpus: 2, ...mine }];
  const leases = [{ lease: 'l', kernel_id: 'k', host: 'a', gpus: ['g1'], ...mine }];
  const props = { store: store({ hosts, queue, leases }), name: id => `${id}.ipynb` };
  const read = text(ClusterSection, props);
  for (const expected of ['1 host: 1 in use, 1 kept', '2 cells are waiting', 'k.ipynb: 2 GPUs']) {
    assert.ok(read.includes(expected), `${expected}: ${read}`);
  }
  const old = {
    ...props,
    store: store({
      queue: [queue[0], { ...queue[0], request: 'r' }],
      scheduler: { ...scheduler, waiting: 1 }
    })
  };
  assert.match(text(ClusterSection, old), /2 cells are waiting for GPUs/);
  assert.match(html(ClusterSection, props), /title="H100 g1\nin use\nyours: k.ipynb\n50 % busy/);
});

test('GPUs of the notebook in front are framed, and not those of one’s other notebooks', () => {
  const store = new LiveStore();
  const lease = (id, kernelId) => ({
    lease: id,
    kernel_id: kernelId,
    user: '',
    notebook: 'a.ipynb',
    yours: true
  });
  const gpus = [gpu('g0', { state: 'active', lease: 'l0' }), gpu('g1', { state: 'active', lease: 'l1' })];
  const leases = [lease('l0', 'k'), lease('l1', 'j')];
  store.apply({ ...snapshot, hosts: [host('alpha', ...gpus)], leases }, 0);
  const shown = html(ClusterSection, { store, name: () => '', inFront: 'k' });
  const framed = [...shown.matchAll(/jp-mod-used( jp-mod-mine)?"/g)].map(found => found[1] !== undefined);
  assert.deepEqual(framed, [true, false]);
  assert.match(shown, /framed: this notebook’s/);
});

test('an administrator reads whose GPUs and cells they are, and which are framed as his own', () => {
  const held = { state: 'active', utilisation: null, memory_used_bytes: null };
  const gpus = ['l', 'm', ''].map((lease, at) => gpu(`g${at}`, { ...held, lease }));
  const alices = { user: 'alice', notebook: 'work/train.ipynb', yours: false };
  const own = { user: 'root', notebook: 'b.ipynb', yours: true };
  const leases = [
    { lease: 'l', kernel_id: 'k', host: 'a', gpus: ['g0'], ...alices },
    { lease: 'm', kernel_id: 'm', host: 'a', gpus: ['g1'], ...own }
  ];
  const queue = [{ request: 'q', kernel_id: 'k', gpus: 1, ...alices }];
  const props = { store: store({ hosts: [host('a', ...gpus)], queue, leases }), name: () => '' };
  const read = text(ClusterSection, props);
  assert.ok(read.includes('Waiting cells train.ipynb of alice: 1 GPU'), read);
  assert.ok(!read.includes('Your cells'), read);
  const titles = html(ClusterSection, props).match(/class="jp-replkernel-gpu [^>]*>/g);
  assert.match(titles[0], /g0\nin use\ntrain\.ipynb of alice"/);
  assert.match(titles[1], /jp-mod-mine" title="H100 g1\nin use\nyours: b\.ipynb"/);
  assert.match(titles[2], /g2\nin use\nanother user’s"/);
  assert.deepEqual(
    titles.map(title => title.includes('jp-mod-mine')),
    [false, true, false]
  );
});

test('a scheduler that cannot be asked is named with what still works', () => {
  const away = store({
    scheduler: { url: 'u', trouble: 'refused', waiting: null, subscription_ratio: null, booked: [] }
  });
  const read = text(ClusterSection, { store: away, name: id => id });
  assert.match(read, /is out of reach: refused\. Cells without GPUs run, and you keep the GPUs you have/);
  assert.doesNotMatch(read, /wait/);
});

test('of many hosts only the rows that are seen are in the page', () => {
  const hosts = Array.from({ length: 500 }, (_, number) => host(`host${number}`, gpu(`g${number}`)));
  const shown = html(GpuGrid, { hosts, whoHolds: () => null });
  assert.ok(shown.match(/<li/g).length < 40);
  assert.match(shown, /aria-setsize="500"/);
});

test('an account says used, saved and quota, and that one is reached', () => {
  const account = {
    user: 'carol',
    gpu_hours: 1.5,
    saved_gpu_hours: 120.4,
    gpu_hours_month: 1,
    gpu_hours_month_quota: 10,
    gpus_held: 4,
    gpu_quota: 4,
    spent_month: 3.5,
    budget_month: 3,
    currency: 'EUR'
  };
  const read = text(AccountSection, { account, leases: [], now: 0 });
  assert.match(
    read,
    /used 1\.50 Saved compared with holding a GPU all session 120 .*month 1\.00 of 10 Spent this month 3\.50 EUR of 3\.00 EUR quota reached GPUs now 4 of 4 quota reached$/
  );
  assert.doesNotMatch(
    text(AccountSection, {
      account: { ...account, gpu_quota: null, spent_month: null },
      leases: [],
      now: 0
    }),
    /reached|Spent/
  );
});

test('a notebook shows its GPUs first, its replicas in a line, what is pinned and why', () => {
  const props = {
    name: 'a.ipynb',
    kernel,
    store: store(),
    actions: {},
    cell: null,
    nameKernel: () => '',
    now: 10
  };
  const read = text(NotebookSection, props);
  for (const expected of [
    'Replicas: 2 of 2 healthy, 1 catching up',
    'pinned: s (a socket)',
    '1 × GPU · a · kept between cells · 6.0 s'
  ]) {
    assert.ok(read.includes(expected), `${expected}: ${read}`);
  }
  const asleep = { ...kernel, rest: 'asleep', holdings: [], replicas: [] };
  const buttons = html(NotebookSection, {
    ...props,
    kernel: asleep,
    store: store({ kernels: [asleep] })
  }).match(/<button[^>]*>[^<]*/g);
  const off = buttons.filter(button => button.includes('disabled')).map(button => button.split('>')[1]);
  assert.deepEqual(off, ['Release GPUs', 'Hibernate']);
  assert.match(
    buttons.find(button => button.endsWith('Hibernate')),
    /title="The kernel is hibernated"/
  );
  assert.ok(read.indexOf('GPUs') < read.indexOf('Replicas'), read);
});

test('of a notebook that waits its cell can be cancelled, and of one that runs not', () => {
  const cell = state => ({
    ...{ kernel_id: 'k', msg_id: 'e', cell_id: 'c', state, wanted: 1, model: '', gpus: [], replica: 'r1' },
    ...{ position: 1, estimate_s: null, awaits: '', told_at: null, trouble: '', accepted_at: 5, host: 'a' }
  });
  const buttons = state => {
    const known = store({ executions: [cell(state)] });
    const props = { name: 'a', kernel, store: known, actions: {}, cell: null, nameKernel: () => '', now: 10 };
    return html(NotebookSection, props).match(/<button[^>]*>Cancel/g);
  };
  assert.equal(buttons('waiting').length, 1);
  assert.equal(buttons('running'), null);
});

test('as many GPUs as a host has can be asked for, and memory', () => {
  const shown = html(GpuRequest, {
    label: 'l',
    action: 'Set',
    gpus: 1,
    vramGb: 20,
    most: 4,
    disabled: false
  });
  const options = shown.match(/<option[^>]*>[^<]*/g).map(option => option.split('>')[1]);
  assert.deepEqual(options, ['none', '¼', '½', '1', '2', '3', '4']);
  assert.match(shown, /type="number"[^>]*value="20"/);
});

test('what a notebook says of GPUs is shown as it is, and costs no more than that', () => {
  const form = gpus =>
    html(GpuRequest, { label: 'l', inherit: 'as above', gpus, vramGb: 0, most: 8, disabled: false });
  const chosen = gpus => /<option[^>]*selected[^>]*>([^<]*)/.exec(form(gpus))[1];
  assert.equal(chosen(null), 'as above');
  assert.equal(chosen(9), '9');
  assert.equal(chosen(-1), '-1');
  assert.equal(chosen(2.5), '2.5');
  assert.equal(chosen(NaN), 'not understood');
  assert.ok(form(1e9).length < 3000);
});

test('of a server that has told nothing yet nothing is said', () => {
  const store = new LiveStore();
  const connection = { store };
  const source = { connection, notebook: () => ({ name: 'a', kernelId: 'k' }), nameKernel: () => '', trans };
  assert.equal(text(SidebarBody, { source }), 'Connecting to the server …');
  store.apply(snapshot, 0);
  assert.match(text(SidebarBody, { source }), /^a Its kernel is starting … Cluster/);
  store.interrupted();
  assert.match(text(SidebarBody, { source }), /Reconnecting… showing the last known state/);
  store.apply(snapshot, 0);
  assert.match(
    text(SidebarBody, { source: { ...source, notebook: () => null } }),
    /^Open a notebook with a Python 3 \(replicated\) kernel to see its GPUs here/
  );
});

test('who has no GPUs yet is told how to get some, also before the first host', () => {
  const none = { ...kernel, holdings: [] };
  const props = {
    name: 'a',
    kernel: none,
    store: store(),
    actions: {},
    cell: null,
    nameKernel: () => '',
    now: 10
  };
  assert.match(text(NotebookSection, props), /No GPUs yet: choose some below, or write %%gpu 1 in a cell\./);
  const asks = { ...props, kernel: { ...none, default_gpus: 2, default_vram_gb: 20 } };
  assert.match(
    text(NotebookSection, asks),
    /None is held now: every cell gets 2 GPUs of 20 GiB or more when/
  );
  assert.match(text(ClusterSection, { store: store(), name: () => '' }), /No host yet: the first notebook/);
});

test('the form of a cell that begins with %%gpu says so', () => {
  const cell = { id: 'c', gpus: null, vramGb: 0, written: '%%gpu 2' };
  const props = { name: 'a', kernel, store: store(), actions: {}, cell, nameKernel: () => '', now: 10 };
  assert.match(text(NotebookSection, props), /GPUs for this cell %%gpu 2 none/);
});

test('a step that is under way says so in words, and its bar stands where it began', () => {
  const steps = [
    { name: 'queue', label: 'Queue', title: '', from: 0, seconds: 1, open: false },
    { name: 'run', label: 'Run', title: '', from: 1, seconds: 3, open: true }
  ];
  assert.equal(text(Timeline, { steps }), 'Queue 1.0 s Run 3.0 s so far');
  const none = { name: 'route', label: 'Route', title: '', from: 1, seconds: 0.0001, open: false };
  assert.equal(
    text(Timeline, { steps: [steps[0], none, steps[1]] }),
    'Queue 1.0 s Run 3.0 s so far Less than 1 ms: Route'
  );
  assert.match(html(Timeline, { steps }), /margin-inline-start:25\.00%;width:75\.00%/);
});

test('of a history that is not known yet nothing is said', () => {
  const part = { document: null, trouble: '', actions: {} };
  assert.equal(text(HistorySection, { part, trans }).trim(), 'History');
  const document = { points: [], marks: {}, branches: {}, here: '', branch: '' };
  assert.equal(
    text(HistorySection, { part: { ...part, document }, trans }),
    'History Nothing has changed yet.'
  );
});
