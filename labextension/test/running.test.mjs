// What the Running panel lists of replicated kernels. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { list } from '../lib/models/running.js';

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const kernel = (kernel_id, more = {}) => ({
  kernel_id,
  state: 'idle',
  rest: 'awake',
  served: true,
  routed: true,
  answers: true,
  cwd: '',
  replicas: [{ role: 'executor' }, { role: 'standby' }, { role: 'starting' }],
  holdings: [],
  ...more
});
const names = those => those.map(one => one.name);

test('kernels that run and those at rest, by the names of their notebooks', () => {
  const sessions = { k1: { name: 'b.ipynb', path: 'b.ipynb' }, k2: { name: 'a.ipynb', path: 'x/a.ipynb' } };
  const kernels = [
    kernel('k1'),
    kernel('k2', { holdings: [{ gpus: ['g'] }] }),
    kernel('k3', { rest: 'asleep' })
  ];
  const { running, resting } = list(kernels, id => sessions[id] ?? null, trans);
  assert.deepEqual(names(running), ['a.ipynb', 'b.ipynb']);
  assert.equal(running[0].path, 'x/a.ipynb');
  assert.deepEqual(
    running.map(one => [one.detail, one.title]),
    [
      ['1 GPU', 'idle · 2 replicas · 1 GPU'],
      ['idle', 'idle · 2 replicas · 0 GPUs']
    ]
  );
  assert.deepEqual(names(resting), ['Kernel k3']);
});

test('one at rest that nobody serves can be had back; what another server serves is not listed', () => {
  const lost = { rest: '', state: 'hibernated', served: false, cwd: '/home/me' };
  const kernels = [
    kernel('k1', { ...lost, routed: false }),
    kernel('k2', { ...lost, routed: true }),
    kernel('k3', { served: false })
  ];
  const { running, resting } = list(kernels, () => null, trans);
  assert.deepEqual(names(resting), ['Kernel k1 · /home/me']);
  assert.deepEqual(running, []);
});
