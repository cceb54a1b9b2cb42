// Who holds GPUs now, and who waits, as panel and dashboard say it. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

register('./endings.mjs', import.meta.url);
const { NowTables } = await import('../lib/components/nowTables.js');
const { allocation, endOfJob, gpusOfJob, progressOfJob } = await import('../lib/models/jobs.js');
const { LiveStore } = await import('../lib/models/live.js');
const { heldNow, hoursUsed, waitsNow } = await import('../lib/models/usage.js');
const { notebookState } = await import('../lib/models/notebookState.js');

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const name = id => (id === 'k' ? 'mine.ipynb' : '');
const gpu = (uuid, state, lease = '') => ({ uuid, model: 'H100', state, lease });
const own = { user: 'ann', notebook: 'mine.ipynb', yours: true };
const alices = { user: 'alice', notebook: 'work/train.ipynb', yours: false };
const scheduler = { url: 'u', trouble: '', waiting: 2, subscription_ratio: 1, booked: [] };
const store = (more = {}) => {
  const made = new LiveStore();
  const nothing = { kernels: [], executions: [], hosts: [], leases: [], queue: [], account: null };
  made.apply({ type: 'snapshot', seq: 0, now: 0, scheduler, ...nothing, ...more }, 0);
  return made;
};
/** What a person reads of the dashboard's tables. */
const tables = (known, now) =>
  renderToStaticMarkup(React.createElement(NowTables, { store: known, now, name, trans }))
    .replace(/<[^>]*>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
const gpus = [gpu('a', 'active', 'l'), gpu('b', 'lingering', 'm'), gpu('c', 'active'), gpu('d', 'active')];
const hosts = [{ name: 'h1', state: 'up', gpus }];
const leases = [
  { lease: 'l', kernel_id: 'x', host: 'h1', gpus: ['a'], since: 100, ...alices },
  { lease: 'm', kernel_id: 'k', host: 'h1', gpus: ['b'], since: 3700, ...own },
  { lease: 'n', kernel_id: 'y', host: 'h1', gpus: [], since: 0, ...own }
];

test('who holds GPUs is told with what they do and cost, of strangers only how many', () => {
  const rows = heldNow(store({ hosts, leases }), 7300, name, trans);
  assert.deepEqual(
    rows.map(({ who, gpus: some, host, use, gpuHours }) => [who, some, host, use, gpuHours]),
    [
      ['mine.ipynb', '1 × H100', 'h1', 'kept between cells', 1],
      ['train.ipynb of alice', '1 × H100', 'h1', 'in use', 2],
      ['another user', '2 × H100', 'h1', 'in use', null]
    ]
  );
});

test('the hours of an account are those that ended and those that the table counts for what is held', () => {
  const account = { gpu_hours: 0.5, gpu_hours_month: 0 };
  const [mine] = heldNow(store({ hosts, leases }), 7300, name, trans);
  assert.equal(hoursUsed(account, leases, 7300), 0.5 + mine.gpuHours, 'nobody else’s');
  assert.ok(hoursUsed(account, leases, 7400) > hoursUsed(account, leases, 7300), 'while cells run');
  assert.equal(
    hoursUsed({ gpu_hours: 0.5, gpu_hours_month: 2 }, [], 7300),
    2,
    'never less than this month’s'
  );
});

test('a cell that waits has the place and the guess of its own line', () => {
  const waiting = { request: 'q', kernel_id: 'k', gpus: 1, position: 3, since: 5, estimate_s: 90, ...own };
  const others = { ...waiting, request: 'r', kernel_id: 'x', position: 4, estimate_s: 120, ...alices };
  const cell = {
    ...{ kernel_id: 'k', msg_id: 'e', cell_id: 'c', state: 'waiting', wanted: 1, model: '', gpus: [] },
    ...{ position: 1, estimate_s: 30, awaits: '', told_at: 10, trouble: '', wished_at: 6, accepted_at: 5 }
  };
  const kernel = { kernel_id: 'k', answers: true, rest: 'awake', state: 'idle', replicas: [], holdings: [] };
  const made = store({ executions: [cell], kernels: [kernel], queue: [waiting, others] });
  const rows = waitsNow(made, 10, name, trans);
  assert.deepEqual(
    rows.map(({ who, gpus: some, place, since }) => [who, some, place, since]),
    [
      ['mine.ipynb', '1 GPU', 'next in line · about 30 s', 6],
      ['train.ipynb of alice', '1 GPU', 'number 4 in line · about 2 min', 5]
    ]
  );
  assert.ok(notebookState(made, 'k', name, trans, 10).text.includes(rows[0].place));
  const [older] = waitsNow(store({ queue: [{ ...others, position: 0, estimate_s: null }] }), 10, name, trans);
  assert.equal(older.place, '', 'an older scheduler tells no place');
});

test('two cells of one notebook that wait have each its own place, and a request without a cell its own', () => {
  const asked = (request, gpus, position) => ({
    ...{ request, kernel_id: 'k', gpus, position, since: position, estimate_s: null, ...own }
  });
  const cell = (msg_id, wanted, position, wished_at) => ({
    ...{ kernel_id: 'k', msg_id, cell_id: msg_id, state: 'waiting', wanted, model: '', gpus: [] },
    ...{ position, estimate_s: null, trouble: '', wished_at, accepted_at: 5 }
  });
  const executions = [cell('late', 1, 4, 9), cell('first', 1, 1, 7), cell('large', 2, 2, 8)];
  const queue = [asked('q', 1, 1), asked('r', 2, 2), asked('s', 1, 4), asked('t', 1, 6)];
  assert.deepEqual(
    waitsNow(store({ executions, queue }), 10, name, trans).map(({ place, since }) => [place, since]),
    [
      ['next in line', 7],
      ['number 2 in line', 8],
      ['number 4 in line', 9],
      ['number 6 in line', 6]
    ]
  );
});

test('the tables say so where nobody holds a GPU, and count what they leave out', () => {
  const text = made =>
    renderToStaticMarkup(React.createElement(NowTables, { store: made, now: 10, name, trans }));
  assert.match(text(store()), /Nobody holds a GPU\..*No cell is waiting for GPUs\./);
  assert.equal(text(new LiveStore()), '');
  const many = Array.from({ length: 120 }, (_, at) => ({ ...leases[0], lease: String(at) }));
  assert.match(text(store({ leases: many })), /and 20 more/);
  const away = store({ hosts, leases });
  away.interrupted();
  assert.match(text(away), /Reconnecting…/);
});

const job = (more = {}) => ({
  job: 'resnet-3f9a2c',
  state: 'running',
  user: 'ann',
  yours: true,
  host: 'h1',
  gpus: 2,
  shapes: [1, 2, 4],
  epoch: 12,
  epochs: 90,
  loss: 0.84,
  ends_in_s: 2400,
  ends_in: [
    { gpus: 1, seconds: 4300 },
    { gpus: 2, seconds: 2400 },
    { gpus: 4, seconds: 1500 }
  ],
  gpu_hours: 1.26,
  said: '',
  reshapes: [
    { at: 1000, gpus: 4, why: 'GPUs were idle' },
    { at: 1300, gpus: 2, why: 'a notebook wanted its GPUs' }
  ],
  cpus: 0,
  cpu_hours: 0,
  ...more
});

test('a job is told with its GPUs, how far it is, and when it ends with as many and with others', () => {
  assert.equal(gpusOfJob(job(), trans), '2 of 1, 2 or 4');
  assert.equal(gpusOfJob(job({ shapes: [1], gpus: 0 }), trans), '0 of 1');
  assert.equal(progressOfJob(job(), trans), 'epoch 12 of 90 · loss 0.84');
  assert.equal(progressOfJob(job({ epoch: null, loss: null }), trans), '');
  assert.equal(endOfJob(job(), trans), '40 min on 2 GPUs, 1 h 12 min on 1, 25 min on 4');
  assert.equal(endOfJob(job({ ends_in: [] }), trans), '40 min');
  assert.equal(endOfJob(job({ ends_in: [], ends_in_s: null }), trans), '');
});

test('its GPUs over time are a line of steps, and words that say the same with the reasons', () => {
  assert.deepEqual(allocation(job(), 1400), [
    [0, 0],
    [0, 1],
    [0.75, 1],
    [0.75, 0.5],
    [1, 0.5]
  ]);
  assert.deepEqual(allocation(job({ reshapes: [] }), 1400), []);
  const shown = tables(
    store({
      hosts,
      jobs: [job(), job({ job: 'b-1', state: 'done', reshapes: [] })]
    }),
    1400
  );
  assert.match(shown, /resnet-3f9a2c training 2 of 1, 2 or 4 h1 epoch 12 of 90 · loss 0.84/);
  assert.match(shown, /2 min ago: 2 GPUs, because a notebook wanted its GPUs/);
  assert.match(shown, /b-1 done – h1/);
  assert.doesNotMatch(tables(store({ hosts }), 1400), /Jobs/);
});

test('a job without GPUs is told with its cores', () => {
  const onCores = job({
    gpus: 0,
    shapes: [],
    ends_in: [],
    gpu_hours: 0,
    cpus: 4,
    cpu_hours: 2.5,
    reshapes: [{ at: 1000, gpus: 4, why: 'there was room' }]
  });
  assert.equal(gpusOfJob(onCores, trans), '4 cores');
  assert.equal(gpusOfJob({ ...onCores, cpus: 1 }, trans), '1 core');
  assert.deepEqual(allocation(onCores, 1400).slice(0, 2), [
    [0, 0],
    [0, 1]
  ]);
  const shown = tables(store({ hosts, jobs: [onCores] }), 1400);
  assert.match(shown, /resnet-3f9a2c running 4 cores h1 .* 2\.50 of cores/);
  assert.match(shown, /resnet-3f9a2c 4 cores there was room/);
  assert.match(shown, /7 min ago: 4 cores, because there was room/);
  assert.match(
    tables(store({ hosts, jobs: [{ ...onCores, state: 'waiting' }] }), 1400),
    /waits for cores 4 cores/
  );
});

test('who holds a GPU that a job uses is the job', () => {
  const held = {
    lease: 'j',
    kernel_id: 'job.resnet-3f9a2c.7',
    host: 'h1',
    gpus: ['a'],
    since: 100,
    ...own
  };
  const used = [{ name: 'h1', state: 'up', gpus: [gpu('a', 'job', 'j'), gpu('b', 'job')] }];
  const rows = heldNow(store({ hosts: used, leases: [{ ...held, notebook: '' }] }), 200, name, trans);
  assert.deepEqual(
    rows.map(({ who, use }) => [who, use]),
    [
      ['job resnet-3f9a2c', 'used by a job'],
      ['another user', 'used by a job']
    ]
  );
});
