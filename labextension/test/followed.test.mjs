// Which process a notebook's debugger follows. Run by `npm test` on compiled code.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Followed } from '../lib/models/followed.js';

const kernel = (...replicas) => ({
  replicas: replicas.map(([replica, role, pid]) => ({ replica, role, pid }))
});

test('another process is told once, however many updates come, and after a time without any', () => {
  const followed = new Followed();
  const first = kernel(['r1', 'executor', 7], ['r2', 'standby', 8]);
  assert.equal(followed.isAnother(first, 'k'), false);
  assert.equal(followed.isAnother(first, 'k'), false);
  assert.equal(followed.isAnother(kernel(['r1', 'dead', 0], ['r2', 'standby', 8]), 'k'), false);
  const second = kernel(['r1', 'standby', 9], ['r2', 'executor', 8]);
  assert.equal(followed.isAnother(second, 'k'), true);
  assert.equal(followed.isAnother(second, 'k'), false);
  assert.equal(followed.isAnother(kernel(['r2', 'executor', 11]), 'k'), true, 'the same replica, born again');
});

test('a debugger that is switched off, or follows another notebook, begins anew', () => {
  const followed = new Followed();
  const first = kernel(['r1', 'executor', 7]);
  assert.equal(followed.isAnother(first, 'k'), false);
  assert.equal(followed.isAnother(null, ''), false);
  assert.equal(followed.isAnother(kernel(['r1', 'executor', 9]), 'k'), false);
  assert.equal(followed.isAnother(kernel(['r1', 'executor', 10]), 'other'), false);
  assert.equal(followed.isAnother(kernel(), 'other'), false);
  assert.equal(followed.isAnother(kernel(['r2', 'executor', 12]), 'other'), true);
});
