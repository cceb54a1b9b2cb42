// What the Running panel lists of replicated kernels. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { register } from 'node:module';
import { test } from 'node:test';

import * as React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

register('./endings.mjs', import.meta.url);
const { ActionLabel } = await import('../lib/components/actionLabel.js');
const { LiveStore } = await import('../lib/models/live.js');
const { list } = await import('../lib/models/running.js');
const { flat, without } = await import('../lib/models/runningItems.js');

const trans = (message, ...values) =>
  values.reduce((text, value, at) => text.replace(`%${at + 1}`, value), message);
const kernel = (kernel_id, more = {}) => ({
  kernel_id,
  state: 'idle',
  rest: 'awake',
  served: true,
  routed: true,
  answers: true,
  executor: '',
  cwd: '',
  began: 0,
  rested: 0,
  state_bytes: 0,
  replicas: ['executor', 'standby', 'starting'].map(role => ({ role, lag: 0, state_bytes: 2048 })),
  holdings: [],
  ...more
});
const told = kernels => {
  const store = new LiveStore();
  const rest = { executions: [], hosts: [], leases: [], queue: [], account: null, scheduler: {} };
  store.apply({ type: 'snapshot', seq: 1, now: 0, kernels, ...rest }, 0);
  return store;
};
const names = those => those.map(one => one.name);

test('kernels that run and hibernated ones, by the names of their notebooks', () => {
  const sessions = { k1: { name: 'b.ipynb', path: 'b.ipynb' }, k2: { name: 'a.ipynb', path: 'x/a.ipynb' } };
  const kernels = [
    kernel('k1'),
    kernel('k2', { holdings: [{ gpus: ['g'] }], began: 1000 }),
    kernel('k3', { rest: 'asleep', rested: 1000, state_bytes: 3072 })
  ];
  const { running, resting } = list(told(kernels), id => sessions[id] ?? null, 12000, trans);
  assert.deepEqual(names(running), ['a.ipynb', 'b.ipynb']);
  assert.equal(running[0].path, 'x/a.ipynb');
  assert.deepEqual(
    running.map(one => [one.detail, one.title]),
    [
      ['1 GPU · 2.0 KiB · 3 h', 'Idle · 2 of 3 healthy, in sync · 1 GPU · 2.0 KiB · started 3 h ago'],
      ['Idle · 2.0 KiB', 'Idle · 2 of 3 healthy, in sync · 0 GPUs · 2.0 KiB']
    ]
  );
  assert.deepEqual(
    resting.map(one => [one.name, one.detail, one.title]),
    [['Kernel k3', '3.0 KiB · 3 h', 'Hibernated for 3 h · 3.0 KiB · k3']]
  );
});

test('a standby that goes without a process until a cell runs is healthy', () => {
  const replicas = ['executor', 'dormant', 'dormant'].map(role => ({ role, lag: 0, state_bytes: 0 }));
  const { running } = list(told([kernel('k', { replicas })]), () => null, 0, trans);
  assert.match(running[0].title, /3 of 3 healthy, in sync/);
});

test('who runs cells is healthy before its own report says so', () => {
  const replicas = ['r1', 'r2'].map(replica => ({ replica, role: 'starting', lag: 0, state_bytes: 0 }));
  const title = executor =>
    list(told([kernel('k', { replicas, executor })]), () => null, 0, trans).running[0].title;
  assert.match(title('r1'), /1 of 2 healthy/);
  assert.match(title(''), /none is ready yet/);
});

test('a row names its kernel and says its state in full to whoever points at it', () => {
  const props = { name: 'a.ipynb', whole: 'x/a.ipynb\nIdle', action: 'Shut Down', title: 't', act: () => {} };
  const html = renderToStaticMarkup(React.createElement(ActionLabel, props));
  assert.match(html, /title="x\/a\.ipynb\nIdle">a\.ipynb<\/span><button/);
});

test('a hibernated one that nobody serves can be resumed; what another server serves is not listed', () => {
  const lost = { rest: '', state: 'hibernated', served: false, cwd: '/home/me' };
  const kernels = [
    kernel('k1', { ...lost, routed: false }),
    kernel('k2', { ...lost, routed: true }),
    kernel('k3', { served: false })
  ];
  const { running, resting } = list(told(kernels), () => null, 0, trans);
  assert.deepEqual(names(resting), ['Kernel k1 · /home/me']);
  assert.deepEqual(running, []);
});

test('other sections leave our kernels out, in a tree too, and no head without a kernel', () => {
  class Spec {
    constructor(name, children) {
      this.name = name;
      this.children = children;
    }
    label() {
      return this.name;
    }
  }
  const kernels = [{ context: 'stock' }, { context: 'ours', children: [{ context: 'ours' }] }];
  const tree = [new Spec('a', kernels), new Spec('b', [{ context: 'ours' }]), { label: () => 'tab' }];
  const left = without(tree, id => id === 'ours');
  assert.deepEqual(
    left.map(item => item.label()),
    ['a', 'tab']
  );
  assert.deepEqual(
    flat(left).flatMap(({ context }) => context ?? []),
    ['stock']
  );
});
