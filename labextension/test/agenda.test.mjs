// When the journal is asked, and what.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  Agenda,
  FAILURES_MAX,
  INTERVAL_MIN_MS,
  REST_FACTOR,
  RETRY_MS,
  SILENCE_MAX_MS
} from '../lib/models/agenda.js';

test('a page that is opened asks for everything at once', () => {
  const agenda = new Agenda();
  assert.equal(agenda.due, null);
  agenda.opened(1000);
  assert.equal(agenda.due, 1000);
  assert.equal(agenda.take(), 'all');
  assert.equal(agenda.due, null);
});

test('many signs are one question, not sooner than the interval allows', () => {
  const agenda = new Agenda();
  agenda.answered(1000, 1010, true);
  agenda.sign(1011);
  agenda.sign(1020);
  assert.equal(agenda.due, 1000 + INTERVAL_MIN_MS);
  assert.equal(agenda.take(), 'news');
});

test('slow answers are asked for less often', () => {
  const agenda = new Agenda();
  agenda.answered(1000, 1400, true);
  agenda.sign(1401);
  assert.equal(agenda.due, 1400 + REST_FACTOR * 400);
});

test('a sign that came during a question is not forgotten, and keeps the pace', () => {
  const agenda = new Agenda();
  agenda.sign(1000);
  agenda.take();
  agenda.sign(1050);
  agenda.answered(1000, 1100, true);
  assert.equal(agenda.due, 1100 + REST_FACTOR * 100);
  assert.equal(agenda.take(), 'news');
});

test('what runs in silence is asked about anyway, and nothing is when nothing runs', () => {
  const agenda = new Agenda();
  agenda.answered(1000, 1010, true);
  assert.equal(agenda.due, 1010 + SILENCE_MAX_MS);
  assert.equal(agenda.take(), 'followed');
  agenda.answered(7000, 7010, false);
  assert.equal(agenda.due, null);
});

test('an answer that does not come is asked for again, later each time, until it is too often', () => {
  const agenda = new Agenda();
  const waits = [];
  for (let failures = 1; failures < FAILURES_MAX; failures += 1) {
    agenda.failed(0);
    waits.push(agenda.due);
    assert.equal(agenda.take(), 'all');
  }
  assert.deepEqual(waits, [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]);
  agenda.failed(0);
  assert.equal(agenda.due, null);
  agenda.opened(5);
  assert.equal(agenda.due, 5);
});
