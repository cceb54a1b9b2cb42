// The one sentence about a notebook that panel, status bar and Running panel show. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

register('./endings.mjs', import.meta.url);
const { gpuLine, requestInWords } = await import('../lib/models/cellRequest.js');
const { gpuChoices, gpusWanted, mostGpus } = await import('../lib/models/cluster.js');
const { bannerInWords } = await import('../lib/models/doubt.js');
const { isSafe, kernelMark } = await import('../lib/models/kernelMark.js');
const { LiveStore } = await import('../lib/models/live.js');
const { notebookState, possible, statusLine } = await import('../lib/models/notebookState.js');

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const cell = (state, more = {}) => ({
  kernel_id: 'k',
  cell_id: 'c',
  msg_id: 'm',
  state,
  safety: 'nothing',
  replica: 'r1',
  host: 'alpha',
  gpus: [],
  wanted: 1,
  model: '',
  trouble: '',
  position: null,
  estimate_s: null,
  awaits: '',
  told_at: null,
  accepted_at: 1,
  ...more
});
const kernel = { kernel_id: 'k', state: 'idle', rest: 'awake', answers: true, replicas: [], holdings: [] };
const page = (executions = [], more = {}, others = {}) => {
  const store = new LiveStore();
  const rest = { hosts: [], leases: [], queue: [], account: null, scheduler: {}, ...others };
  store.apply(
    { type: 'snapshot', seq: 1, now: 0, kernels: [{ ...kernel, ...more }], executions, ...rest },
    0
  );
  return store;
};
const said = store => notebookState(store, 'k', () => '', trans, 10).text;
const bar = store => statusLine(store, 'k', 'Replica r1 · alpha', () => '', trans, 10);

test('a notebook that waits for GPUs is not idle, and says what panel, line and status bar say', () => {
  const lease = { lease: 'l', kernel_id: 'j', gpus: ['g'], notebook: 'x/b.ipynb', user: '', yours: true };
  const store = page(
    [cell('waiting', { position: 1, wished_at: 5, estimate_s: 30 })],
    {},
    { leases: [lease] }
  );
  assert.equal(said(store), 'Waiting for 1 GPU · next in line · about 30 s · held by b.ipynb');
  assert.equal(bar(store), said(store));
});

test('a kernel whose cell runs is not idle, whatever was answered meanwhile', () => {
  const store = page([cell('running'), cell('queued', { cell_id: 'd', msg_id: 'n' })]);
  assert.equal(bar(store), 'Running · r1 · alpha');
});

test('only what a kernel can do now is offered', () => {
  const can = more => {
    const kernel = { rest: 'awake', state: 'idle', holdings: [], ...more };
    return ['ask', 'release', 'hibernate', 'resume'].filter(does => possible(kernel, does));
  };
  assert.deepEqual(can({}), ['ask', 'hibernate']);
  assert.deepEqual(can({ rest: 'asleep' }), ['ask', 'resume']);
  assert.deepEqual(can({ holdings: [{ cell: '' }] }), ['ask', 'release', 'hibernate']);
  assert.deepEqual(can({ holdings: [{ cell: 'm' }] }), ['ask', 'hibernate'], 'its cell uses them');
});

test('of a hibernated kernel nothing else is said: no GPU, no mark', () => {
  const store = page([cell('done', { safety: 'durable' })], { rest: 'asleep' });
  assert.equal(bar(store), 'Hibernated');
  assert.equal(kernelMark(store, 'k', trans), '');
  assert.equal(said(page([], { state: 'hibernated', rest: '' })), 'Hibernated');
});

test('who is idle says where its last cell ran, and which GPUs are kept now, not which that cell had', () => {
  const store = page([cell('done', { gpus: ['g'] })]);
  assert.equal(said(store), 'Idle');
  assert.equal(bar(store), 'Replica r1 · alpha');
  const held = { lease: 'l', host: 'alpha', gpus: ['g'], cell: '', since: 1, part: 0, part_gb: 0 };
  assert.equal(bar(page([], { holdings: [held] })), 'Replica r1 · alpha · 1 GPU kept');
});

test('one banner says that a cell keeps running while the page reconnects', () => {
  const banner = (doubt, busy) => bannerInWords(doubt, busy, false, trans);
  assert.equal(banner('no connection', true), 'Reconnecting: your cell keeps running');
  assert.equal(banner('no connection', false), 'Reconnecting… showing the last known state');
  assert.equal(banner('', true), '');
});

test('the banner calls variables safe only where all of them are known to be durable', () => {
  const banner = (executions, more = {}) => {
    const silent = page(executions, { answers: false, ...more });
    return bannerInWords(silent.doubt('k'), false, isSafe(silent, 'k'), trans);
  };
  const durable = cell('done', { safety: 'durable' });
  const other = more => cell('done', { cell_id: 'd', msg_id: 'n', ...more });
  assert.match(banner([durable, other()]), /does not answer at the moment\. Its variables are safe\.$/);
  const marked = /does not answer at the moment\. Cells marked “durable” are safe\.$/;
  assert.match(banner([]), marked);
  assert.match(banner([durable, other({ safety: 'pending' })]), marked);
  assert.match(banner([durable, other({ safety: 'lost' })]), marked);
  assert.match(banner([durable, other({ state: 'running' })]), marked);
  assert.match(
    banner([durable], { replicas: [{ replica: 'r1', pins: [{ name: 's', reason: 'a socket' }] }] }),
    marked
  );
});

test('a cell with a request of its own has a badge, by its settings or by what it begins with', () => {
  assert.equal(gpuLine('# train\n%%time\n%%gpu 2 --vram 20\nx'), '%%gpu 2 --vram 20');
  assert.equal(gpuLine('x = 1\n%%gpu 2'), '');
  assert.equal(gpuLine('%%gpus'), '');
  const badge = (gpus, vramGb, written = '') => requestInWords({ gpus, vramGb }, written, trans);
  assert.deepEqual(
    [
      badge(2, 0),
      badge(1, 20),
      badge(0, 0),
      badge(null, 0),
      badge(null, 0, '%%gpu 2'),
      badge(2, 0, '%%gpu 1')
    ],
    ['2 GPUs', '1 GPU of 20 GiB or more', 'No GPU', '', '%%gpu 2', '2 GPUs']
  );
});

test('a part of a GPU is written as a fraction, with its memory', () => {
  const wanted = (gpus, gib) => gpusWanted(gpus, gib, trans);
  assert.deepEqual(
    [wanted(0.5, 0), wanted(0.5, 8), wanted(0.3, 0), wanted(1, 8)],
    ['½ GPU', '½ GPU · 8 GiB', '0.3 GPU', '1 GPU of 8 GiB or more']
  );
});

test('as many GPUs are offered as one host has', () => {
  assert.equal(mostGpus([{ gpus: [1, 2] }, { gpus: [1] }]), 2);
  assert.equal(mostGpus([{ gpus: [] }]), 8);
  assert.equal(mostGpus([]), 1, 'nothing that is offered goes when hosts are known');
  assert.deepEqual(gpuChoices(4, 2), [0, 0.25, 0.5, 1, 2, 4]);
});
