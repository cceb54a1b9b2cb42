// When the journal is asked, and what.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  Polling,
  FAILURES_MAX,
  INTERVAL_MIN_MS,
  REST_FACTOR,
  RETRY_MS,
  SILENCE_MAX_MS
} from '../lib/models/polling.js';

test('a page that is opened asks for everything at once', () => {
  const polling = new Polling();
  assert.equal(polling.due, null);
  polling.opened(1000);
  assert.equal(polling.due, 1000);
  assert.equal(polling.take(), 'all');
  assert.equal(polling.due, null);
});

test('many signs are one question, not sooner than the interval allows', () => {
  const polling = new Polling();
  polling.answered(1000, 1010, true);
  polling.sign(1011);
  polling.sign(1020);
  assert.equal(polling.due, 1000 + INTERVAL_MIN_MS);
  assert.equal(polling.take(), 'news');
});

test('slow answers are asked for less often', () => {
  const polling = new Polling();
  polling.answered(1000, 1400, true);
  polling.sign(1401);
  assert.equal(polling.due, 1400 + REST_FACTOR * 400);
});

test('a sign that came during a question is not forgotten, and keeps the pace', () => {
  const polling = new Polling();
  polling.sign(1000);
  polling.take();
  polling.sign(1050);
  polling.answered(1000, 1100, true);
  assert.equal(polling.due, 1100 + REST_FACTOR * 100);
  assert.equal(polling.take(), 'news');
});

test('what runs in silence is asked about anyway, and nothing is when nothing runs', () => {
  const polling = new Polling();
  polling.answered(1000, 1010, true);
  assert.equal(polling.due, 1010 + SILENCE_MAX_MS);
  assert.equal(polling.take(), 'followed');
  polling.answered(7000, 7010, false);
  assert.equal(polling.due, null);
});

test('an answer that does not come is asked for again, later each time, until it is too often', () => {
  const polling = new Polling();
  const waits = [];
  for (let failures = 1; failures < FAILURES_MAX; failures += 1) {
    polling.failed(0);
    waits.push(polling.due);
    assert.equal(polling.take(), 'all');
  }
  assert.deepEqual(waits, [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]);
  polling.failed(0);
  assert.equal(polling.due, null);
  polling.opened(5);
  assert.equal(polling.due, 5);
});
